/* Devices are told apart by the device and inode number of what they have, not by its path: that
 * may have been renamed, and in another mount namespace means nothing. */
#include "gateway/sandbox/loopdev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"

#define TRIES 64 /* others look for a free device at the same time */

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

/* The kernel's own way to put a device number into a word. */
static bool same_device(uint64_t kernels, dev_t dev)
{
    return (kernels & 0xfff00U) >> 8 == major(dev) &&
           ((kernels & 0xffU) | ((kernels >> 12) & 0xfff00U)) == minor(dev);
}

static bool has_image(int fd, const struct stat *image)
{
    struct loop_info64 info = {0};
    return ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_offset == 0 &&
           info.lo_inode == image->st_ino && same_device(info.lo_device, image->st_dev);
}

static bool is_attached(const char *name)
{
    char path[300];
    return strncmp(name, "loop", 4) == 0 &&
           kg_format(path, sizeof(path), "/sys/block/%s/loop/backing_file", name) == 0 &&
           access(path, F_OK) == 0;
}

int kg_loop_find(const char *image, char ret_device[KG_LOOP_NAME_MAX], int *ret_fd)
{
    struct stat st;
    int r = -ENOENT;

    if (stat(image, &st) < 0) {
        return -errno;
    }
    DIR *dir = opendir("/sys/block");
    if (!dir) {
        return -errno;
    }
    for (struct dirent *entry = next_entry(dir); entry && r == -ENOENT; entry = next_entry(dir)) {
        char path[KG_LOOP_NAME_MAX];
        if (!is_attached(entry->d_name) ||
            kg_format(path, sizeof(path), "/dev/%s", entry->d_name) < 0) {
            continue;
        }
        KG_AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && has_image(fd, &st)) {
            memcpy(ret_device, path, sizeof(path));
            *ret_fd = kg_take_fd(&fd);
            r = 0;
        }
    }
    closedir(dir);
    return r;
}

static int configure(int device, int image)
{
    struct loop_config config = {.fd = (uint32_t)image};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0) {
        /* Nothing twice in the page cache, where the disk's block size allows it. */
        (void)ioctl(device, LOOP_SET_DIRECT_IO, 1UL);
        return 0;
    }
    return -errno;
}

int kg_loop_attach(const char *image, char ret_device[KG_LOOP_NAME_MAX], int *ret_fd)
{
    int r = kg_loop_find(image, ret_device, ret_fd);
    if (r != -ENOENT) {
        return r;
    }
    KG_AUTO_CLOSE int file = open(image, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    KG_AUTO_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (file < 0 || control < 0) {
        return -errno;
    }
    r = -EBUSY;
    for (int i = 0; i < TRIES && r == -EBUSY; i++) {
        char path[KG_LOOP_NAME_MAX];
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0) {
            return -errno;
        }
        (void)snprintf(path, sizeof(path), "/dev/loop%d", number);
        KG_AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            return -errno;
        }
        r = configure(fd, file);
        if (r == 0) {
            memcpy(ret_device, path, sizeof(path));
            *ret_fd = kg_take_fd(&fd);
        }
    }
    return r;
}

int kg_loop_grow(int fd)
{
    return ioctl(fd, LOOP_SET_CAPACITY) < 0 ? -errno : 0;
}
