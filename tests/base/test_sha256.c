/* SHA-256: the examples of FIPS 180-4's companion (NIST, "SHA256.pdf"; the last is from FIPS 180-2), and that the data
 * may come in any pieces. */
#include "base/sha256.h"
#include "check.h"

static void expect(const void *data, size_t n, size_t piece, const char *want) {
    Sha256 s;
    char hex[2 * SHA256_BYTES + 1];
    sha256_start(&s);
    for (size_t at = 0; at < n; at += piece) sha256_add(&s, (const char *)data + at, n - at < piece ? n - at : piece);
    sha256_end(&s, hex);
    CU_ASSERT_STRING_EQUAL(hex, want);
}

static void test_examples(void) {
    static char million[1000000];
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    memset(million, 'a', sizeof million);
    static const size_t pieces[] = {1, 3, 63, 64, 65, 1000000};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        expect("", 0, pieces[i], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        expect("abc", 3, pieces[i], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        expect(two_blocks, 56, pieces[i], "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        expect(million, sizeof million, pieces[i], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {{"examples", test_examples}, CU_TEST_INFO_NULL};
    return check_run("sha256", tests);
}
