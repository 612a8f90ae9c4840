/* The start after a keeper that was killed: sandboxes whose sandal-init still lives are taken over
 * as they run, all others are given back. A sandal-init counts as ours when pid, start time and
 * boot are those of its record and it answers. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/proctree.h"

static void read_boot(kg_keeper_t *k)
{
    KG_AUTO_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, k->boot, sizeof(k->boot) - 1);
    k->boot[n > 0 ? n : 0] = '\0';
    k->boot[strcspn(k->boot, "\n")] = '\0';
}

/* A descriptor for the process of the record, or -ESRCH when that one is gone. */
static int find_init(const kg_keeper_t *k, const kg_record_t *record)
{
    kg_task_t task;
    pid_t pid = record->launched.init_pid;

    if (record->state != KG_KP_RUNNING || strcmp(record->boot, k->boot) != 0 || pid <= 1) {
        return -ESRCH;
    }
    KG_AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 || kg_task_read(pid, &task) < 0 || task.start_ticks != record->init_start ||
        task.state == 'Z') {
        return -ESRCH;
    }
    return kg_take_fd(&fd);
}

/* In the worker. */
static void do_adopt(kg_keeper_t *k,
                     kg_sb_t *sb,
                     const kg_kp_request_t *request,
                     kg_answer_t *answer,
                     int fds[KEEPER_ANSWER_FDS])
{
    kg_err_t err = {0};
    (void)request;
    if (sb->launcher->pause) { /* it may have been paused: then it would not answer */
        (void)sb->launcher->pause(&k->host, sb->id, false, &err);
    }
    fds[0] = keeper_dial(k, sb, sb->init_pid, true);
    if (fds[0] < 0) {
        answer->failed = 1;
        (void)kg_err_set(&answer->err, KG_ERR_INTERNAL, "%s", strerrordesc_np(-fds[0]));
    }
}

void keeper_adopt_answered(kg_keeper_t *k, kg_sb_t *sb, const kg_answer_t *answer, int *life)
{
    if (!sb || sb->state != KG_KP_MAKING) {
        return;
    }
    sb->state = KG_KP_RUNNING;
    if (answer->failed) {
        kg_log(KG_LOG_WARN, "sandbox.not_adopted", "id=%s reason=\"%s\"", sb->id,
               answer->err.message);
        sb->orphaned = true;
        keeper_end_sandbox(k, sb);
        return;
    }
    sb->control_fd = kg_take_fd(life);
    kg_log(KG_LOG_INFO, "sandbox.adopted", "id=%s isolation=%s pid=%d", sb->id, sb->launcher->name,
           sb->init_pid);
}

static void take_over(kg_keeper_t *k, kg_sb_t *sb, const kg_record_t *record, int pidfd_take)
{
    sb->launched = record->launched;
    sb->init_pid = record->launched.init_pid;
    sb->init_start = record->init_start;
    sb->init_pidfd = pidfd_take;
    sb->state = KG_KP_MAKING;
    int r = keeper_errand_start(k, sb, KG_ERRAND_ADOPT, NULL, KEEPER_ADOPT_S, do_adopt);
    if (r < 0) {
        kg_answer_t none = {.failed = 1};
        int life = -1;
        (void)kg_err_set(&none.err, KG_ERR_INTERNAL, "%s", strerrordesc_np(-r));
        keeper_adopt_answered(k, sb, &none, &life);
    }
}

static int adopt_one(kg_keeper_t *k, const char *id)
{
    kg_record_t record;
    kg_sb_t *sb = NULL;
    uint32_t slot = 0;

    int r = keeper_record_read(k, id, &record);
    if (r == 0 && k->host.is_root) {
        r = keeper_slot_of(k, record.base, &slot);
        r = r < 0 ? r : keeper_add_at(k, id, slot, &sb);
    } else if (r == 0) {
        r = record.base == geteuid() ? keeper_add_at(k, id, record.slot, &sb) : -EPERM;
    }
    if (r != 0) {
        return r;
    }
    sb->launcher = kg_launcher_find(record.launcher);
    memcpy(sb->template_name, record.template_name, sizeof(sb->template_name));
    memcpy(sb->zygote, record.zygote, sizeof(sb->zygote));
    if (record.slots > 1 && keeper_make_zygote(k, sb, record.slots) < 0) {
        kg_log(KG_LOG_WARN, "sandbox.zygote_cut", "id=%s slots=%u", id, record.slots);
    }
    int pidfd = sb->launcher ? find_init(k, &record) : -ESRCH;
    if (pidfd >= 0) {
        take_over(k, sb, &record, pidfd);
        return 0;
    }
    if (record.state != KG_KP_DORMANT) {
        kg_log(KG_LOG_WARN, "sandbox.found_dead", "id=%s isolation=%s", id, record.launcher);
        sb->remove_files = record.state == KG_KP_MAKING && record.remove_files;
        keeper_give_back(k, sb);
    }
    return 0;
}

/* Calls each for every record. How many it answered with more than 0; -errno when there is no list.
 */
static int each_record(kg_keeper_t *k, int (*each)(kg_keeper_t *k, const char *id))
{
    char id[KG_KP_ID_MAX];
    int fd = openat(k->host.sandboxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int found = 0;

    if (!dir) {
        return -errno;
    }
    read_boot(k);
    for (;;) {
        const struct dirent *entry = readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
        if (!entry) {
            break;
        }
        int r = keeper_record_id(entry->d_name, id) ? each(k, id) : 0;
        found += r > 0;
        if (r < 0) {
            kg_log(KG_LOG_WARN, "sandbox.record_left_alone", "id=%s reason=%s", id,
                   strerrorname_np(-r));
        }
    }
    closedir(dir);
    return found;
}

int keeper_adopt(kg_keeper_t *k)
{
    int r = each_record(k, adopt_one);
    return r < 0 ? r : 0;
}

static int lives(kg_keeper_t *k, const char *id)
{
    kg_record_t record;
    KG_AUTO_CLOSE int pidfd = keeper_record_read(k, id, &record) == 0 ? find_init(k, &record) : -1;
    return pidfd >= 0;
}

bool keeper_others_live(kg_keeper_t *k)
{
    return each_record(k, lives) > 0;
}

bool keeper_adopting(const kg_keeper_t *k)
{
    return keeper_errand_at(k, KG_ERRAND_ADOPT);
}
