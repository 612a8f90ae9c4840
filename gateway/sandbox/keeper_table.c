/* The keeper's table of sandboxes and of uid slots. Every id that the gateway names is looked up
 * here. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/keeper.h"

kg_sb_t *keeper_find(kg_keeper_t *k, const char *id)
{
    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (strcmp(sb->id, id) == 0) {
            return sb;
        }
    }
    return NULL;
}

kg_sb_t *keeper_find_init(kg_keeper_t *k, pid_t init_pid)
{
    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->init_pid == init_pid) {
            return sb;
        }
    }
    return NULL;
}

kg_sb_t *keeper_find_worker(kg_keeper_t *k, pid_t worker_pid)
{
    for (kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        if (sb->worker_pid == worker_pid) {
            return sb;
        }
    }
    return NULL;
}

int keeper_add_at(kg_keeper_t *k, const char *id, uint32_t slot, kg_sb_t **ret_sb)
{
    if (slot >= k->host.slot_count || k->slot_used[slot] == KG_SLOT_TAKEN ||
        k->slot_used[slot] == KG_SLOT_FOREIGN) {
        return -EBUSY;
    }
    kg_sb_t *sb = calloc(1, sizeof(*sb));
    if (!sb) {
        return -ENOMEM;
    }
    memcpy(sb->id, id, strlen(id) + 1); /* checked by the codec: it fits */
    sb->state = KG_KP_DORMANT;
    sb->control_fd = -1;
    sb->init_pidfd = -1;
    sb->slot = slot;
    sb->slots = 1;
    sb->base = k->host.is_root ? k->host.uid_base + slot * KG_UID_RANGE : geteuid();
    sb->uid = k->host.is_root ? sb->base + KG_UID_USER : geteuid();
    sb->gid = k->host.is_root ? (gid_t)(sb->base + KG_UID_USER) : getegid();
    k->slot_used[slot] = KG_SLOT_TAKEN;
    sb->next = k->sandboxes;
    k->sandboxes = sb;
    k->sandbox_count++;
    *ret_sb = sb;
    return 0;
}

int keeper_add(kg_keeper_t *k, const char *id, kg_sb_t **ret_sb)
{
    /* Round robin, so that a uid rests as long as it can before it is used again. */
    for (uint32_t i = 0; i < k->host.slot_count; i++) {
        uint32_t slot = (k->slot_hint + i) % k->host.slot_count;
        if (k->slot_used[slot] == KG_SLOT_FREE) {
            int r = keeper_add_at(k, id, slot, ret_sb);
            if (r == 0) {
                k->slot_hint = slot + 1;
            }
            return r;
        }
    }
    return -EDQUOT;
}

/* A row of free slots behind the first, or slot_count. */
static uint32_t find_row(const kg_keeper_t *k, uint32_t slots)
{
    uint32_t free = 0;
    for (uint32_t slot = 0; slot < k->host.slot_count; slot++) {
        free = k->slot_used[slot] == KG_SLOT_FREE ? free + 1 : 0;
        if (free == slots) {
            return slot + 1 - slots;
        }
    }
    return k->host.slot_count;
}

int keeper_make_zygote(kg_keeper_t *k, kg_sb_t *sb, uint32_t slots)
{
    if (slots == 0 || slots > k->host.slot_count - sb->slot) {
        return -ERANGE;
    }
    sb->slots = slots;
    for (uint32_t slot = sb->slot + 1; slot < sb->slot + slots; slot++) {
        if (k->slot_used[slot] == KG_SLOT_FREE) {
            k->slot_used[slot] = KG_SLOT_KEPT;
        }
    }
    return 0;
}

/* Those of zygotes. Ordinary sandboxes find no place in them. */
static uint32_t slots_kept(const kg_keeper_t *k)
{
    uint32_t slots = 0;
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        slots += sb->slots > 1 ? sb->slots : 0;
    }
    return slots;
}

int keeper_add_zygote(kg_keeper_t *k, const char *id, kg_sb_t **ret_sb)
{
    uint32_t slots = k->host.slot_count / KEEPER_ZYGOTE_SHARE;

    slots = slots < KEEPER_ZYGOTE_SLOTS ? slots : KEEPER_ZYGOTE_SLOTS;
    bool room = slots > 1 && slots_kept(k) + slots <= k->host.slot_count / KEEPER_ZYGOTES_SHARE;
    uint32_t first = room ? find_row(k, slots) : k->host.slot_count;
    if (first == k->host.slot_count) {
        return -EDQUOT;
    }
    int r = keeper_add_at(k, id, first, ret_sb);
    return r < 0 ? r : keeper_make_zygote(k, *ret_sb, slots);
}

int keeper_add_below(kg_keeper_t *k, const char *id, const kg_sb_t *zygote, kg_sb_t **ret_sb)
{
    for (uint32_t slot = zygote->slot + 1; slot < zygote->slot + zygote->slots; slot++) {
        if (k->slot_used[slot] == KG_SLOT_KEPT) {
            int r = keeper_add_at(k, id, slot, ret_sb);
            if (r == 0) {
                memcpy((*ret_sb)->zygote, zygote->id, sizeof((*ret_sb)->zygote));
            }
            return r;
        }
    }
    return -EDQUOT;
}

bool keeper_has_children(const kg_keeper_t *k, const kg_sb_t *zygote)
{
    for (const kg_sb_t *sb = k->sandboxes; sb; sb = sb->next) {
        bool lives = sb->state == KG_KP_MAKING || sb->state == KG_KP_RUNNING ||
                     (sb->state == KG_KP_ENDING && sb->init_pid != 0);
        if (lives && strcmp(sb->zygote, zygote->id) == 0) {
            return true;
        }
    }
    return false;
}

/* Of one that is off the list. */
static void give_slots(kg_keeper_t *k, const kg_sb_t *sb)
{
    k->slot_used[sb->slot] = KG_SLOT_FREE;
    for (uint32_t slot = sb->slot + 1; slot < sb->slot + sb->slots; slot++) {
        if (k->slot_used[slot] == KG_SLOT_KEPT) {
            k->slot_used[slot] = KG_SLOT_FREE;
        }
    }
    for (const kg_sb_t *z = k->sandboxes; z; z = z->next) {
        if (z->slot < sb->slot && sb->slot < z->slot + z->slots) {
            k->slot_used[sb->slot] = KG_SLOT_KEPT;
        }
    }
}

void keeper_drop(kg_keeper_t *k, kg_sb_t *sb)
{
    kg_sb_t **at = &k->sandboxes;
    while (*at != sb) {
        at = &(*at)->next;
    }
    *at = sb->next;
    give_slots(k, sb);
    k->sandbox_count--;
    kg_closep(&sb->control_fd);
    kg_closep(&sb->init_pidfd);
    free(sb);
}

int keeper_slot_of(const kg_keeper_t *k, uid_t uid, uint32_t *ret_slot)
{
    if (uid < k->host.uid_base || (uid - k->host.uid_base) / KG_UID_RANGE >= k->host.slot_count) {
        return -ERANGE;
    }
    *ret_slot = (uid - k->host.uid_base) / KG_UID_RANGE;
    return 0;
}

static int adopt_dir(kg_keeper_t *k, const char *id)
{
    struct stat st;
    char leaf[KG_KP_ID_MAX + sizeof("/workspace")];
    uint32_t slot = 0;
    kg_sb_t *sb;

    if (kg_format(leaf, sizeof(leaf), "%s/workspace", id) < 0 ||
        fstatat(k->host.sandboxes_fd, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    if (!S_ISDIR(st.st_mode)) {
        return -ENOTDIR;
    }
    if (!k->host.is_root) {
        return st.st_uid == geteuid() ? keeper_add(k, id, &sb) : -EPERM;
    }
    int r = keeper_slot_of(k, st.st_uid, &slot);
    return r < 0 ? r : keeper_add_at(k, id, slot, &sb);
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

void keeper_clear_runtime(kg_keeper_t *k)
{
    int fd = openat(k->host.runtime_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        return;
    }
    for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
        const kg_sb_t *sb = kg_kp_id_valid(entry->d_name) ? keeper_find(k, entry->d_name) : NULL;
        if (kg_kp_id_valid(entry->d_name) && (!sb || sb->state == KG_KP_DORMANT)) {
            (void)kg_fs_remove_tree(k->host.runtime_fd, entry->d_name);
        }
    }
    closedir(dir);
}

int keeper_adopt_dirs(kg_keeper_t *k)
{
    int fd = openat(k->host.sandboxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        return -errno;
    }
    for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
        if (!kg_kp_id_valid(entry->d_name) || keeper_find(k, entry->d_name)) {
            continue;
        }
        int r = adopt_dir(k, entry->d_name);
        if (r < 0) {
            kg_log(KG_LOG_WARN, "sandbox.directory_left_alone", "id=%s reason=%s", entry->d_name,
                   strerrorname_np(-r));
        }
    }
    closedir(dir);
    return 0;
}
