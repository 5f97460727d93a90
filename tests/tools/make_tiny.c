/* Writes a tiny model for the tests of the program: make_tiny FILE [SEED [f32|q4_0|q4_1|q8_0 [CONTEXT
 * [EXPERTS [TEMPLATE [WINDOW]]]]]]: of EXPERTS a token gets 2 (0: no mixture); the text of a chat template; positions
 * that attention sees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiny_model.h"

int main(int argc, char **argv) {
    static const QType types[] = {QT_F32, QT_Q4_0, QT_Q4_1, QT_Q8_0};
    TinyModel m = {.layers = 2, .width = 96, .heads = 3, .kv_heads = 1, .ffn = 192, .vocab = 1100, .context = 256};
    m.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    m.qtype = QT_Q8_0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (argc > 3 && strcasecmp(argv[3], qtype_info(types[i])->name) == 0) m.qtype = types[i];
    if (argc > 4) m.context = atoi(argv[4]);
    if (argc > 5) m.experts = atoi(argv[5]);
    m.used = 2;
    if (argc > 6) m.chat_template = argv[6];
    if (argc > 7) m.window = atoi(argv[7]);
    if (argc < 2 || !tiny_model_write(argv[1], &m)) {
        fprintf(stderr, "make_tiny: cannot write %s\n", argc < 2 ? "without a file name" : argv[1]);
        return 1;
    }
    return 0;
}
