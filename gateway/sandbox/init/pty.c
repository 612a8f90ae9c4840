/* Terminals of the sandbox's own /dev/pts. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/init.h"

/* The sandbox's root owns /dev, so what lies at that name may be anything: it is never waited for,
 * and only believed when it answers like a terminal. */
static int open_master(const kg_ip_spawn_t *spawn)
{
    const struct winsize size = {.ws_row = spawn->rows, .ws_col = spawn->columns};
    int unlock = 0;
    unsigned number;
    KG_AUTO_CLOSE int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        return -errno;
    }
    if (ioctl(fd, TIOCGPTN, &number) < 0 || ioctl(fd, TIOCSPTLCK, &unlock) < 0 ||
        ioctl(fd, TIOCSWINSZ, &size) < 0) {
        return errno == ENOTTY ? -ENODEV : -errno;
    }
    return kg_take_fd(&fd);
}

int init_pty_open(const kg_init_t *in, const kg_ip_spawn_t *spawn, int inner[3], int *ret_outer)
{
    bool as_user = in->is_root && !(spawn->flags & KG_IP_SPAWN_ROOT);
    KG_AUTO_CLOSE int master = open_master(spawn);

    if (master < 0) {
        return master;
    }
    for (int i = 0; i < 3; i++) {
        inner[i] = i == 0 ? ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)
                          : fcntl(inner[0], F_DUPFD_CLOEXEC, 0);
        if (inner[i] < 0) {
            return -errno;
        }
    }
    if (as_user && fchown(inner[0], in->uid, (gid_t)-1) < 0) { /* programs open it by its name */
        return -errno;
    }
    *ret_outer = kg_take_fd(&master);
    return 0;
}
