/* A range of user ids for a keeper of a test: one that no living keeper of this machine holds. */
#ifndef KG_TESTS_UID_RANGE_H
#define KG_TESTS_UID_RANGE_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

/* The first of `ranges` ranges of count ids from base on, beginning with the one numbered `number`
 * (modulo ranges). A keeper locks a file BASE-COUNT. */
static inline unsigned
test_uid_base(unsigned base, unsigned count, unsigned ranges, unsigned number)
{
    for (unsigned i = 0; i < ranges; i++) {
        unsigned at = base + (number + i) % ranges * count;
        char path[64];
        (void)snprintf(path, sizeof(path), "/run/sandal-uids/%u-%u", at, count);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            return at;
        }
        int taken = flock(fd, LOCK_EX | LOCK_NB);
        close(fd);
        if (taken == 0) {
            return at;
        }
    }
    return base;
}

#endif
