#include "engine/hf_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/unicode.h"

static int grow(void **list, size_t n, size_t *cap, size_t size, Err *e) {
    if (n < *cap) return 0;
    size_t wanted = *cap ? 2 * *cap : 64, bytes;
    void *grown = size_mul(wanted, size, &bytes) ? realloc(*list, bytes) : NULL;
    if (!grown) return err_set(e, "out of memory for the pieces of a text");
    *list = grown;
    *cap = wanted;
    return 0;
}

void hf_pieces_clear(HfPieces *p) {
    p->text.len = 0;
    p->n = 0;
    p->at_start = false;
}

void hf_pieces_free(HfPieces *p) {
    strbuf_free(&p->text);
    free(p->ends);
    *p = (HfPieces){0};
}

int hf_pieces_end(HfPieces *p, Err *e) {
    if (p->text.failed) return err_set(e, "out of memory for the pieces of a text");
    if (p->text.len == (p->n ? p->ends[p->n - 1] : 0)) return 0;
    void *ends = p->ends;
    if (grow(&ends, p->n, &p->cap, sizeof *p->ends, e)) return -1;
    p->ends = ends;
    p->ends[p->n++] = p->text.len;
    return 0;
}

int hf_behavior(const char *name, HfBehavior *out, Err *e) {
    static const char *const names[] = {[HF_REMOVED] = "Removed",
                                        [HF_ISOLATED] = "Isolated",
                                        [HF_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [HF_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [HF_CONTIGUOUS] = "Contiguous"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *out = (HfBehavior)i;
            return 0;
        }
    return err_set(e, "behavior \"%s\" is not supported", text_printable((Text){name, strlen(name)}).text);
}

void hf_segments_free(HfSegments *s) {
    free(s->at);
    *s = (HfSegments){0};
}

static int add(HfSegments *s, size_t begin, size_t end, bool match, Err *e) {
    void *at = s->at;
    if (grow(&at, s->n, &s->cap, sizeof *s->at, e)) return -1;
    s->at = at;
    s->at[s->n++] = (HfSegment){begin, end, match};
    return 0;
}

int hf_segments_by_regex(HfSegments *s, Regex *pattern, const char *text, size_t n, Err *e) {
    RegexIter it = {0};
    size_t done = 0, begin, end;
    int found;
    s->n = 0;
    while ((found = regex_each(pattern, text, n, &it, &begin, &end, e)) > 0) {
        if (begin > done && add(s, done, begin, false, e)) return -1;
        if (add(s, begin, end, true, e)) return -1;
        done = end;
    }
    return found < 0 || (done < n && add(s, done, n, false, e)) ? -1 : 0;
}

int hf_segments_by_kind(HfSegments *s, bool (*is)(int32_t c), const char *text, size_t n, Err *e) {
    size_t done = 0;
    s->n = 0;
    for (size_t i = 0, size; i < n; i += size) {
        if (!is(unicode_at(text + i, &size))) continue;
        if (i > done && add(s, done, i, false, e)) return -1;
        if (add(s, i, i + size, true, e)) return -1;
        done = i + size;
    }
    return done < n ? add(s, done, n, false, e) : 0;
}

/* Whether a segment joins the one before it, which is `last` when there is one. */
static bool joins(HfBehavior behavior, bool match, bool previous) {
    return behavior == HF_CONTIGUOUS ? match == previous : match && !previous;
}

static void merge_forwards(HfSegments *s, HfBehavior behavior) {
    size_t kept = 0;
    bool previous = false;
    for (size_t i = 0; i < s->n; i++) {
        HfSegment seg = s->at[i];
        if (joins(behavior, seg.match, previous) && kept) s->at[kept - 1].end = seg.end;
        else s->at[kept++] = (HfSegment){seg.begin, seg.end, false};
        previous = seg.match;
    }
    s->n = kept;
}

static void merge_backwards(HfSegments *s) {
    size_t kept = s->n;
    bool previous = false;
    for (size_t i = s->n; i-- > 0;) {
        HfSegment seg = s->at[i];
        if (joins(HF_MERGED_WITH_NEXT, seg.match, previous) && kept < s->n) s->at[kept].begin = seg.begin;
        else s->at[--kept] = (HfSegment){seg.begin, seg.end, false};
        previous = seg.match;
    }
    s->n -= kept;
    memmove(s->at, s->at + kept, s->n * sizeof *s->at);
}

void hf_segments_behave(HfSegments *s, HfBehavior behavior, bool invert) {
    for (size_t i = 0; i < s->n && invert; i++) s->at[i].match = !s->at[i].match;
    switch (behavior) {
    case HF_REMOVED: break;
    case HF_ISOLATED:
        for (size_t i = 0; i < s->n; i++) s->at[i].match = false;
        break;
    case HF_MERGED_WITH_PREVIOUS:
    case HF_CONTIGUOUS: merge_forwards(s, behavior); break;
    case HF_MERGED_WITH_NEXT: merge_backwards(s); break;
    }
}
