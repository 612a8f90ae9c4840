/* The allow-list. To show more, add a row; think of who may write there and what it may say: the
 * sandbox's root reads every file that it sees, whatever its mode. */
#include "gateway/sandbox/ns_mask_list.h"

#include "gateway/base/mem.h"
#include "gateway/sandbox/limits.h"
#include "gateway/sandbox/ns_mask.h"

#define SHOW(p)                                                                                    \
    {                                                                                              \
        .op = KG_MASK_SHOW, .path = (p)                                                            \
    }
#define DIR(p, m)                                                                                  \
    {                                                                                              \
        .op = KG_MASK_DIR, .path = (p), .mode = (m)                                                \
    }
#define USER_DIR(p)                                                                                \
    {                                                                                              \
        .op = KG_MASK_DIR, .path = (p), .mode = 0755, .uid = KG_UID_USER                           \
    }
#define LINK(p, to)                                                                                \
    {                                                                                              \
        .op = KG_MASK_LINK, .path = (p), .text = (to)                                              \
    }
#define TEXT(p, m, t)                                                                              \
    {                                                                                              \
        .op = KG_MASK_TEXT, .path = (p), .mode = (m), .text = (t)                                  \
    }
#define NODE(p, a, b)                                                                              \
    {                                                                                              \
        .op = KG_MASK_NODE, .path = (p), .mode = 0666, .major = (a), .minor = (b)                  \
    }

static const kg_mask_row_t host_rows[] = {
    SHOW("usr"),
    DIR("usr/local/etc", 0755), /* an administrator's configuration */
    SHOW("bin"),
    SHOW("sbin"),
    SHOW("lib"),
    SHOW("lib32"),
    SHOW("lib64"),
    SHOW("libx32"),

    SHOW("etc/alternatives"),
    SHOW("etc/bash.bashrc"),
    SHOW("etc/bindresvport.blacklist"),
    SHOW("etc/ca-certificates"),
    SHOW("etc/ca-certificates.conf"),
    SHOW("etc/debconf.conf"),
    SHOW("etc/debian_version"),
    SHOW("etc/default/locale"),
    SHOW("etc/default/useradd"),
    SHOW("etc/deluser.conf"),
    SHOW("etc/adduser.conf"),
    SHOW("etc/dpkg"),
    SHOW("etc/emacs"),
    SHOW("etc/ethertypes"),
    SHOW("etc/fonts"),
    SHOW("etc/gai.conf"),
    SHOW("etc/ghostscript"),
    SHOW("etc/glvnd"),
    SHOW("etc/groff"),
    SHOW("etc/gtk-2.0"),
    SHOW("etc/gtk-3.0"),
    SHOW("etc/host.conf"),
    SHOW("etc/ImageMagick-6"),
    SHOW("etc/inputrc"),
    SHOW("etc/issue"),
    SHOW("etc/java*"),
    SHOW("etc/jvm*"),
    SHOW("etc/ld.so.*"),
    SHOW("etc/libaudit.conf"),
    SHOW("etc/libpaper.d"),
    SHOW("etc/locale.alias"),
    SHOW("etc/locale.gen"),
    SHOW("etc/localtime"),
    SHOW("etc/login.defs"),
    SHOW("etc/logcheck"),
    SHOW("etc/magic"),
    SHOW("etc/magic.mime"),
    SHOW("etc/mailcap"),
    SHOW("etc/manpath.config"),
    SHOW("etc/matplotlibrc"),
    SHOW("etc/mime.types"),
    SHOW("etc/netconfig"),
    SHOW("etc/networks"),
    SHOW("etc/openal"),
    SHOW("etc/OpenCL"),
    SHOW("etc/os-release"),
    SHOW("etc/pam.conf"),
    SHOW("etc/pam.d"),
    SHOW("etc/papersize"),
    SHOW("etc/perl"),
    SHOW("etc/pki/ca-trust"),
    SHOW("etc/pki/tls/certs"),
    SHOW("etc/profile"),
    SHOW("etc/protocols"),
    SHOW("etc/pulse"),
    SHOW("etc/python*"),
    SHOW("etc/R"),
    SHOW("etc/rmt"),
    SHOW("etc/rpc"),
    SHOW("etc/selinux/semanage.conf"),
    SHOW("etc/security/*"),
    SHOW("etc/services"),
    SHOW("etc/sgml"),
    SHOW("etc/shells"),
    SHOW("etc/skel"),
    SHOW("etc/ssl/certs"),
    SHOW("etc/ssl/openssl.cnf"),
    SHOW("etc/terminfo"),
    SHOW("etc/texmf"),
    SHOW("etc/timezone"),
    SHOW("etc/ucf.conf"),
    SHOW("etc/vim"),
    SHOW("etc/X11"),
    SHOW("etc/xattr.conf"),
    SHOW("etc/xdg"),
    SHOW("etc/xml"),

    /* apt: where packages come from and whom it believes. auth.conf and what is written in
     * apt.conf.d by hand only where the operator lists them. */
    SHOW("etc/apt/apt.conf.d/01autoremove"),
    SHOW("etc/apt/apt.conf.d/70debconf"),
    SHOW("etc/apt/apt.conf.d/docker*"),
    SHOW("etc/apt/keyrings/*"),
    SHOW("etc/apt/preferences"),
    SHOW("etc/apt/preferences.d/*"),
    SHOW("etc/apt/sources.list"),
    SHOW("etc/apt/sources.list.d/*"),
    SHOW("etc/apt/trusted.gpg"),
    SHOW("etc/apt/trusted.gpg.d/*"),
    DIR("etc/apt/auth.conf.d", 0755),
    TEXT("etc/dpkg/dpkg.cfg.d/sandal", 0644, "force-unsafe-io\n"),

    DIR("etc/default", 0755),
    DIR("etc/init.d", 0755),
    DIR("etc/opt", 0755),
    DIR("etc/profile.d", 0755),
    DIR("etc/ssl/private", 0700),
    DIR("etc/sysctl.d", 0755),
    TEXT("etc/environment", 0644, ""),
    TEXT("etc/nsswitch.conf",
         0644,
         "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\n"
         "networks: files\nprotocols: db files\nservices: db files\nethers: db files\nrpc: db "
         "files\n"),
    /* What is installed inside starts no service. */
    TEXT("usr/sbin/policy-rc.d", 0755, "#!/bin/sh\nexit 101\n"),

    /* Private, but for the database of what is installed, which apt and dpkg go on from, and the
     * registers that packages' scripts keep. Not ucf's: it has copies of configuration. */
    DIR("var", 0755),
    DIR("var/backups", 0755),
    DIR("var/cache/apt/archives/partial", 0755),
    DIR("var/cache/debconf", 0755),
    DIR("var/cache/ldconfig", 0700),
    DIR("var/cache/man", 0755),
    DIR("var/lib", 0755),
    DIR("var/lib/apt/lists/partial", 0755),
    DIR("var/lib/apt/mirrors/partial", 0755),
    DIR("var/lib/misc", 0755),
    DIR("var/lib/systemd", 0755),
    DIR("var/lib/ucf", 0755),
    DIR("var/local", 02775),
    DIR("var/log/apt", 0755),
    DIR("var/mail", 02775),
    DIR("var/opt", 0755),
    DIR("var/spool", 0755),
    SHOW("var/cache/fontconfig"),
    SHOW("var/lib/apt/extended_states"),
    SHOW("var/lib/aspell"),
    SHOW("var/lib/dictionaries-common"),
    SHOW("var/lib/dpkg"),
    SHOW("var/lib/emacsen-common"),
    SHOW("var/lib/ghostscript"),
    SHOW("var/lib/ispell"),
    SHOW("var/lib/pam"),
    SHOW("var/lib/python"),
    SHOW("var/lib/sgml-base"),
    SHOW("var/lib/shells.state"),
    SHOW("var/lib/tex-common"),
    SHOW("var/lib/texmf"),
    SHOW("var/lib/vim"),
    SHOW("var/lib/xml-core"),

    DIR("boot", 0755),
    DIR("home", 0755),
    DIR("media", 0755),
    DIR("mnt", 0755),
    DIR("opt", 0755),
    DIR("root", 0700),
    DIR("srv", 0755),
};

static const kg_mask_row_t common_rows[] = {
    DIR("dev", 0755),
    DIR("dev/pts", 0755),
    DIR("dev/shm", 01777),
    /* Nodes of this layer: binds of the host's would each be a mount from outside. */
    NODE("dev/null", 1, 3),
    NODE("dev/zero", 1, 5),
    NODE("dev/full", 1, 7),
    NODE("dev/random", 1, 8),
    NODE("dev/urandom", 1, 9),
    NODE("dev/tty", 5, 0),
    LINK("dev/ptmx", "pts/ptmx"),
    LINK("dev/fd", "/proc/self/fd"),
    LINK("dev/stdin", "/proc/self/fd/0"),
    LINK("dev/stdout", "/proc/self/fd/1"),
    LINK("dev/stderr", "/proc/self/fd/2"),
    DIR("proc", 0555),
    DIR("run", 0755),
    DIR("tmp", 01777),
    DIR("var/tmp", 01777),
    LINK("var/run", "/run"),
    LINK("var/lock", "/run/lock"),
    /* Not a sysfs: just what tells how many processors there are. */
    DIR("sys", 0555),
    LINK("sys/devices/system/cpu/online", KG_MASK_VIEW "/cpus"),
    LINK("sys/devices/system/cpu/possible", KG_MASK_VIEW "/cpus"),
    LINK("sys/devices/system/cpu/present", KG_MASK_VIEW "/cpus"),
    LINK("etc/hosts", KG_MASK_VIEW "/hosts"),
    LINK("etc/hostname", KG_MASK_VIEW "/hostname"),
    LINK("etc/resolv.conf", KG_MASK_VIEW "/resolv.conf"),
    LINK("etc/mtab", "/proc/self/mounts"),
    USER_DIR("home/user"),
    USER_DIR("workspace"),
};

const kg_mask_row_t *kg_mask_host_rows(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(host_rows);
    return host_rows;
}

const kg_mask_row_t *kg_mask_common_rows(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(common_rows);
    return common_rows;
}
