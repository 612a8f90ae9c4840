/* Whether the functions that lws.c puts in the place of libwebsockets' own are in force. They are
 * only while the library calls its own exported functions through its relocations: a build of it
 * with -Bsymbolic or -fno-semantic-interposition would quietly go on with its own, answer HTML to
 * bad requests and read freed memory. So the program looks before it serves anybody. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/edge/edge_priv.h"

/* What of a loaded library is needed here. */
typedef struct library {
    const char *base;
    const char *names;
    const ElfW(Sym) * symbols;
    const ElfW(Rela) * tables[2]; /* DT_JMPREL, DT_RELA */
    size_t sizes[2];
    bool symbolic;
} library_t;

static const void *at(ElfW(Addr) address)
{
    const void *p;
    memcpy(&p, &address, sizeof p);
    return p;
}

static bool read_library(const void *inside, library_t *ret)
{
    Dl_info info;
    void *extra = NULL;
    if (!dladdr1(inside, &info, &extra, RTLD_DL_LINKMAP) || !extra) {
        return false;
    }
    const struct link_map *map = extra;
    *ret = (library_t){.base = at(map->l_addr)};
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_STRTAB:
            ret->names = at(d->d_un.d_ptr);
            break;
        case DT_SYMTAB:
            ret->symbols = at(d->d_un.d_ptr);
            break;
        case DT_JMPREL:
            ret->tables[0] = at(d->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            ret->sizes[0] = d->d_un.d_val;
            break;
        case DT_RELA:
            ret->tables[1] = at(d->d_un.d_ptr);
            break;
        case DT_RELASZ:
            ret->sizes[1] = d->d_un.d_val;
            break;
        case DT_SYMBOLIC:
            ret->symbolic = true;
            break;
        case DT_FLAGS:
            ret->symbolic = ret->symbolic || (d->d_un.d_val & DF_SYMBOLIC);
            break;
        default:
            break;
        }
    }
    return ret->names && ret->symbols;
}

/* The library calls name, and nowhere has it bound the call to its own. */
static bool calls(const library_t *lib, const char *name, const void *own)
{
    bool found = false;
    for (size_t t = 0; t < KG_ARRAY_LEN(lib->tables); t++) {
        const ElfW(Rela) *rela = lib->tables[t];
        for (size_t n = rela ? lib->sizes[t] / sizeof *rela : 0; n-- > 0; rela++) {
            const ElfW(Sym) *symbol = &lib->symbols[ELF64_R_SYM(rela->r_info)];
            if (strcmp(lib->names + symbol->st_name, name) != 0) {
                continue;
            }
            const void *bound;
            memcpy(&bound, lib->base + rela->r_offset, sizeof bound);
            if (bound == own) {
                return false;
            }
            found = true;
        }
    }
    return found;
}

void kg_lws_real(const char *name, void *ret_function)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(ret_function, &symbol, sizeof(symbol));
}

bool kg_lws_replaced(const char *name)
{
    library_t lib;
    const void *ours = dlsym(RTLD_DEFAULT, name); /* what the loader finds first */
    const void *own = dlsym(RTLD_NEXT, name);     /* of lws, or of what it calls */
    const void *inside = dlsym(RTLD_NEXT, "lws_service_fd_tsi");
    return ours && own && ours != own && inside && read_library(inside, &lib) && !lib.symbolic &&
           calls(&lib, name, own);
}

int kg_lws_check(kg_err_t *err)
{
    static const char *const names[] = {"lws_return_http_status",
                                        "lws_vhost_name_to_protocol",
                                        "lws_buflist_next_segment_len",
                                        "lws_close_free_wsi",
                                        "lws_service_fd_tsi",
                                        "recv",
                                        "SSL_read"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        if (!kg_lws_replaced(names[i])) {
            return kg_err_set(err, KG_ERR_INTERNAL,
                              "This build of libwebsockets (%s) does not let the program replace "
                              "its %s; Debian's 4.1 does.",
                              lws_get_library_version(), names[i]);
        }
    }
    if (strncmp(lws_get_library_version(), "4.1.", 4) != 0) {
        kg_log(KG_LOG_WARN, "edge.lws_version", "version=%s tested=4.1", lws_get_library_version());
    }
    return 0;
}
