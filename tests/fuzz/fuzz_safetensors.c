/* Any bytes as a safetensors file: its header is read or refused with one line, and what is read lies within the file,
 * one tensor after the other. */
#include <stdlib.h>
#include <string.h>

#include "graph/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Safetensors s;
    Err e = {""};
    if (safetensors_from_memory(data, size, size, "fuzz.safetensors", &s, &e)) {
        if (!e.msg[0] || strchr(e.msg, '\n') || !strstr(e.msg, "fuzz.safetensors")) abort();
    } else {
        if (s.n == 0 || s.tensor[s.n - 1].offset + s.tensor[s.n - 1].bytes != size) abort();
        for (size_t i = 1; i < s.n; i++)
            if (s.tensor[i].offset != s.tensor[i - 1].offset + s.tensor[i - 1].bytes) abort();
        for (size_t i = 0; i < s.n; i++)
            if (strlen(s.tensor[i].name.data) != s.tensor[i].name.size) abort();
    }
    safetensors_free(&s);
    return 0;
}
