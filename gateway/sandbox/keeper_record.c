/* Records: STATE/sandboxes/ID.rec says of each sandbox which slot and launcher it has and, while it
 * lives, which process it is. Written whole or not at all; only the keeper's user can. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"

#define RECORD_MAGIC UINT32_C(0x4b475231)
#define RECORD_VERSION 3
#define SUFFIX ".rec"
#define NAME_MAX_ (KG_KP_ID_MAX + 8)

static void copy_text(char *to, size_t cap, const char *from)
{
    (void)snprintf(to, cap, "%s", from);
}

static void fill(const kg_keeper_t *k, const kg_sb_t *sb, kg_record_t *r)
{
    memset(r, 0, sizeof(*r)); /* its padding too: all of it is written */
    r->magic = RECORD_MAGIC;
    r->version = RECORD_VERSION;
    r->size = sizeof(*r);
    r->state = sb->state == KG_KP_MAKING || sb->state == KG_KP_RUNNING ? (uint32_t)sb->state
                                                                       : KG_KP_DORMANT;
    r->base = sb->base;
    r->slot = sb->slot;
    r->slots = sb->slots;
    copy_text(r->zygote, sizeof(r->zygote), sb->zygote);
    r->remove_files = sb->remove_files;
    r->init_start = sb->init_start;
    copy_text(r->id, sizeof(r->id), sb->id);
    copy_text(r->launcher, sizeof(r->launcher), sb->launcher ? sb->launcher->name : "");
    copy_text(r->template_name, sizeof(r->template_name), sb->template_name);
    copy_text(r->boot, sizeof(r->boot), k->boot);
    r->launched = sb->launched;
}

static int write_all(int fd, const void *data, size_t size)
{
    ssize_t n = write(fd, data, size);
    return n < 0 ? -errno : (size_t)n == size ? 0 : -ENOSPC;
}

int keeper_record_write(const kg_keeper_t *k, const kg_sb_t *sb)
{
    char name[NAME_MAX_];
    char tmp[NAME_MAX_];
    kg_record_t record;

    fill(k, sb, &record);
    (void)snprintf(name, sizeof(name), "%s" SUFFIX, sb->id);
    (void)snprintf(tmp, sizeof(tmp), ".%s.tmp", sb->id);
    KG_AUTO_CLOSE int fd = openat(k->host.sandboxes_fd, tmp,
                                  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -errno;
    }
    int r = write_all(fd, &record, sizeof(record));
    if (r == 0 && renameat(k->host.sandboxes_fd, tmp, k->host.sandboxes_fd, name) < 0) {
        r = -errno;
    }
    if (r < 0) {
        (void)unlinkat(k->host.sandboxes_fd, tmp, 0);
    }
    return r;
}

void keeper_record_remove(const kg_keeper_t *k, const char *id)
{
    char name[NAME_MAX_];
    (void)snprintf(name, sizeof(name), "%s" SUFFIX, id);
    (void)unlinkat(k->host.sandboxes_fd, name, 0);
}

bool keeper_record_id(const char *name, char ret_id[KG_KP_ID_MAX])
{
    size_t len = strlen(name);
    if (len <= strlen(SUFFIX) || len - strlen(SUFFIX) >= KG_KP_ID_MAX ||
        strcmp(name + len - strlen(SUFFIX), SUFFIX) != 0) {
        return false;
    }
    (void)snprintf(ret_id, KG_KP_ID_MAX, "%.*s", (int)(len - strlen(SUFFIX)), name);
    return kg_kp_id_valid(ret_id);
}

static bool text_ok(const char *text, size_t cap)
{
    return memchr(text, '\0', cap) != NULL;
}

static bool record_ok(const kg_record_t *r, const char *id)
{
    const kg_launched_t *l = &r->launched;
    return r->magic == RECORD_MAGIC && r->version == RECORD_VERSION && r->size == sizeof(*r) &&
           r->state <= KG_KP_RUNNING && text_ok(r->id, sizeof(r->id)) && strcmp(r->id, id) == 0 &&
           text_ok(r->launcher, sizeof(r->launcher)) && text_ok(r->zygote, sizeof(r->zygote)) &&
           text_ok(r->template_name, sizeof(r->template_name)) &&
           text_ok(r->boot, sizeof(r->boot)) && text_ok(l->workspace, sizeof(l->workspace)) &&
           text_ok(l->home, sizeof(l->home)) && text_ok(l->run_dir, sizeof(l->run_dir)) &&
           l->init_pid >= 0;
}

int keeper_record_read(const kg_keeper_t *k, const char *id, kg_record_t *ret)
{
    char name[NAME_MAX_];
    (void)snprintf(name, sizeof(name), "%s" SUFFIX, id);
    KG_AUTO_CLOSE int fd =
        openat(k->host.sandboxes_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    ssize_t n = read(fd, ret, sizeof(*ret));
    if (n < 0) {
        return -errno;
    }
    return (size_t)n == sizeof(*ret) && record_ok(ret, id) ? 0 : -EBADMSG;
}
