/* cli: the turn of a gateway. Two of them on one state would write to the same database and logs:
 * one whose keeper was killed may still be leaving when the next start comes. */
#include "gateway/cli/turn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"

#define LOOK_MS 20

static int held_by_other(int fd, const char *path, kg_err_t *err)
{
    char pid[24] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
    pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
    (void)kg_err_set(err, KG_ERR_CONFIG, "%s: an earlier gateway, process %s, still has it.", path,
                     pid[0] ? pid : "unknown");
    kg_err_hint(err, "It did not leave within %d s. Look at what it waits for, or end it.",
                KG_TURN_WAIT_MS / 1000);
    return -EBUSY;
}

static int wait_for_lock(int fd, const char *path, kg_err_t *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    uint64_t end_ns = kg_now_ns() + KG_TURN_WAIT_MS * KG_NS_PER_MS;
    bool waited = false;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
        }
        if (kg_now_ns() >= end_ns) {
            return held_by_other(fd, path, err);
        }
        if (!waited) {
            kg_log(KG_LOG_INFO, "gateway.waits", "for=\"the one before\"");
        }
        waited = true;
        nanosleep(&pause, NULL);
    }
    if (waited) {
        nanosleep(&pause, NULL); /* its listeners are closed after its lock */
    }
    return 0;
}

static int take_lock(const char *state_dir, int *ret_fd, kg_err_t *err)
{
    char path[512];
    char pid[24];
    if (kg_format(path, sizeof(path), "%s/gateway.lock", state_dir) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "state directory: path too long");
    }
    KG_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
    }
    int r = wait_for_lock(fd, path, err);
    if (r < 0) {
        return r;
    }
    int len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)len, 0) != len) {
        kg_log(KG_LOG_WARN, "gateway.lock", "error=%d", errno); /* who holds it would be unknown */
    }
    *ret_fd = kg_take_fd(&fd);
    return 0;
}

int kg_turn_take(const kg_config_t *config, kg_turn_t *ret, kg_err_t *err)
{
    kg_turn_t turn = {.lock_fd = -1};
    int r = take_lock(config->state_dir, &turn.lock_fd, err);
    turn.sockets = r == 0 ? calloc(config->listen.count + 1, sizeof(*turn.sockets)) : NULL;
    if (r == 0 && !turn.sockets) {
        r = kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    while (r == 0 && turn.count < config->listen.count) {
        r = kg_edge_socket_open(config->listen.items[turn.count], 0, &turn.sockets[turn.count],
                                err);
        turn.count += r == 0;
    }
    if (r < 0) {
        kg_turn_end(&turn);
        return r;
    }
    *ret = turn;
    return 0;
}

void kg_turn_end(kg_turn_t *turn)
{
    for (size_t i = 0; i < turn->count; i++) {
        kg_edge_socket_close(&turn->sockets[i]);
    }
    free(turn->sockets);
    *turn = (kg_turn_t){.lock_fd = turn->lock_fd};
    kg_closep(&turn->lock_fd);
}
