/* cli: STATE/key. */
#include "gateway/cli/first_key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static int any(void *user, const kg_key_t *key)
{
    (void)key;
    *(bool *)user = true;
    return 0;
}

static int write_all(int fd, const char *text, size_t len)
{
    if (write(fd, text, len) != (ssize_t)len || fsync(fd) < 0) {
        return errno ? -errno : -EIO;
    }
    return 0;
}

static int write_key(const char *state_dir, const char *plain, kg_err_t *err)
{
    KG_AUTO_CLOSE int dir = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    KG_AUTO_CLOSE int fd = -1;
    if (dir >= 0) {
        unlinkat(dir, KG_FIRST_KEY_FILE ".tmp", 0);
        fd = openat(dir, KG_FIRST_KEY_FILE ".tmp",
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    int r = fd < 0 ? -errno : write_all(fd, plain, strlen(plain));
    if (r == 0 && renameat(dir, KG_FIRST_KEY_FILE ".tmp", dir, KG_FIRST_KEY_FILE) < 0) {
        r = -errno;
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_STORAGE_FULL, "cannot write %s/%s: %s", state_dir,
                          KG_FIRST_KEY_FILE, strerrordesc_np(-r));
    }
    return 0;
}

int kg_first_key(kg_store_t *store, const char *state_dir, kg_err_t *err)
{
    bool found = false;
    int r = kg_store_key_each(store, any, &found, err);
    if (r < 0 || found) {
        return r;
    }
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t key;
    r = kg_store_key_add(store, "local", "first key", "admin use", 0, plain, &key, err);
    if (r == 0) {
        r = write_key(state_dir, plain, err);
        if (r < 0) {
            kg_store_key_remove(store, key.id, NULL);
        }
    }
    sodium_memzero(plain, sizeof(plain));
    return r;
}
