/* Loop devices over image files. Blocking, libc only, root. */
#ifndef KG_SANDBOX_LOOPDEV_H
#define KG_SANDBOX_LOOPDEV_H

#define KG_LOOP_NAME_MAX 32

/* Attaches the image, or finds the device that has it already: two devices of one image would
 * destroy it. ret_fd keeps it attached; it detaches itself when neither a descriptor nor a mount is
 * left. ret_device: "/dev/loop3". 0 or -errno. */
int kg_loop_attach(const char *image, char ret_device[KG_LOOP_NAME_MAX], int *ret_fd);
/* Only looks; -ENOENT when no device has it. */
int kg_loop_find(const char *image, char ret_device[KG_LOOP_NAME_MAX], int *ret_fd);
/* The image has grown: the device does too. */
int kg_loop_grow(int fd);

#endif
