#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "mpi_util.h"

enum {
    PAGE = 4096,
    SKEW = 2 * PAGE, /* room in a rank's area to shift its slots */
    SKEW_STEP = 192, /* so that equal offsets in different slots do not meet in the same set of the L1 cache */
};

/* What local rank 0 tells the others. The inode's identity guards against opening something else under the same path,
 * which happens where ranks have PID namespaces or a /dev/shm of their own. */
typedef struct Offer {
    int status;
    uint64_t device, inode, size;
    char path[64];
    char message[sizeof(Err)];
} Offer;

static const size_t slot_sizes[] = {1u << 20, 1u << 18, 1u << 16};

static size_t area_bytes(size_t slot_bytes) { return 2 * slot_bytes + SKEW; }

static size_t area_offset(const Segment *s, int rank) {
    return s->control_bytes + (size_t)rank * area_bytes(s->slot_bytes);
}

uint8_t *segment_slot(const Segment *s, int rank, int slot) {
    size_t shift = (size_t)((2 * rank + slot) % (SKEW / SKEW_STEP)) * SKEW_STEP;
    return s->base + area_offset(s, rank) + (slot ? s->slot_bytes + shift : shift);
}

void segment_free(Segment *s) {
    if (s->base) munmap(s->base, s->bytes);
    memset(s, 0, sizeof *s);
}

static int new_file(SegmentKind kind, char *path, size_t path_size, Err *e) {
    if (kind == SEGMENT_MEMFD) {
        int fd = memfd_create("sheaf", MFD_CLOEXEC);
        if (fd < 0) return err_errno(e, "memfd_create");
        snprintf(path, path_size, "/proc/%d/fd/%d", (int)getpid(), fd);
        return fd;
    }
    uint64_t token[2];
    if (getrandom(token, sizeof token, 0) != sizeof token) return err_errno(e, "getrandom");
    snprintf(path, path_size, "/dev/shm/sheaf-%016llx%016llx", (unsigned long long)token[0],
             (unsigned long long)token[1]);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? err_errno(e, "%s", path) : fd;
}

/* On local rank 0: a file of `bytes` zeroes and where the others find it. Returns its descriptor, or -1. */
static int make_offer(SegmentKind kind, size_t bytes, Offer *offer, Err *e) {
    int fd = new_file(kind, offer->path, sizeof offer->path, e);
    struct stat st;
    if (fd < 0) return -1;
    if (ftruncate(fd, (off_t)bytes) || fstat(fd, &st)) {
        err_errno(e, "%s: cannot be made %zu bytes long", offer->path, bytes);
        if (kind == SEGMENT_SHM) unlink(offer->path);
        close(fd);
        return -1;
    }
    offer->device = st.st_dev;
    offer->inode = st.st_ino;
    offer->size = bytes;
    return fd;
}

static int accept_offer(const Offer *offer, Err *e) {
    int fd = open(offer->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_errno(e,
                         "shared memory of this host's first rank, %s (have all ranks of this host the same /proc and "
                         "/dev/shm?)",
                         offer->path);
    struct stat st;
    if (!fstat(fd, &st) && st.st_dev == offer->device && st.st_ino == offer->inode &&
        (uint64_t)st.st_size == offer->size)
        return fd;
    close(fd);
    return err_set(e, "%s is not the memory that this host's first rank created: the ranks are in different containers",
                   offer->path);
}

/* Allocates the pages that are this rank's to write, so that too little memory is an error here and now. */
static int allocate_mine(const Segment *s, int fd, int rank, Err *e) {
    int rc = rank ? 0 : posix_fallocate(fd, 0, (off_t)s->control_bytes);
    if (!rc) rc = posix_fallocate(fd, (off_t)area_offset(s, rank), (off_t)area_bytes(s->slot_bytes));
    errno = rc;
    return rc ? err_errno(e, "%zu bytes of shared memory for this rank", area_bytes(s->slot_bytes)) : 0;
}

static int map_and_allocate(Segment *s, int fd, int rank, Err *e) {
    if (allocate_mine(s, fd, rank, e)) return -1;
    void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return err_errno(e, "mapping %zu bytes of shared memory", s->bytes);
    s->base = p;
    return 0;
}

static int try_create(MPI_Comm local, int rank, SegmentKind kind, size_t slot_bytes, Segment *s, Err *e) {
    s->slot_bytes = slot_bytes;
    s->bytes = s->control_bytes + (size_t)s->ranks * area_bytes(slot_bytes);
    Offer offer = {0};
    int fd = -1, rc;
    if (rank == 0) {
        fd = make_offer(kind, s->bytes, &offer, e);
        offer.status = fd < 0 ? -1 : 0;
        if (fd < 0) memcpy(offer.message, e->msg, sizeof offer.message);
    }
    if (mpi_ok(MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, local), "MPI_Bcast", e)) return -1;
    if (offer.status) {
        memcpy(e->msg, offer.message, sizeof e->msg);
        return -1;
    }
    if (rank) fd = accept_offer(&offer, e);
    rc = fd < 0 ? -1 : map_and_allocate(s, fd, rank, e);
    rc = mpi_agree(local, rc, e);
    /* All have opened it, or given up: the name is not needed any more. */
    if (rank == 0 && kind == SEGMENT_SHM) unlink(offer.path);
    if (fd >= 0) close(fd);
    if (!rc) return 0;
    if (s->base) munmap(s->base, s->bytes);
    s->base = NULL;
    return -1;
}

int segment_create(MPI_Comm local, SegmentKind kind, size_t control_bytes, Segment *out, Err *e) {
    static const SegmentKind all[] = {SEGMENT_MEMFD, SEGMENT_SHM};
    Segment s = {.control_bytes = round_up(control_bytes, PAGE)};
    Err own;
    int rank;
    if (!e) e = &own;
    MPI_Comm_size(local, &s.ranks);
    MPI_Comm_rank(local, &rank);
    for (size_t size = 0; size < sizeof slot_sizes / sizeof *slot_sizes; size++)
        for (size_t k = 0; k < 2; k++) {
            if (kind != SEGMENT_ANY && kind != all[k]) continue;
            if (try_create(local, rank, all[k], slot_sizes[size], &s, e)) continue;
            *out = s;
            return 0;
        }
    return -1;
}
