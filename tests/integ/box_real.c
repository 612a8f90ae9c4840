/* A sandbox of a real keeper: its own processes, directories below /tmp, the launcher that
 * SANDAL_TEST_ISOLATION names. */
#include "tests/integ/box.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/id.h"
#include "gateway/base/str.h"
#include "tests/uid_range.h"

struct box {
    kg_loop_t *loop;
    kg_keeper_t *keeper;
    kg_sbx_t *sbx;
    kg_timer_t *timer;
    uint64_t until_ns;
    bool asked;
    bool over;
    char dir[64];
    char run_dir[KG_SBX_PATH_MAX];
    pid_t keeper_pid;
};

static void tick(void *user)
{
    box_t *box = user;
    if (box->over || kg_now_ns() > box->until_ns) {
        kg_loop_stop(box->loop);
    }
}

static void wait_over(box_t *box)
{
    box->until_ns = kg_now_ns() + 10 * KG_NS_PER_S;
    kg_timer_start(box->timer, 0, KG_NS_PER_MS);
    kg_loop_run(box->loop);
    kg_timer_stop(box->timer);
}

static void on_created(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    box_t *box = user;
    if (!sbx) {
        fprintf(stderr, "box: %s\n", err->message);
    }
    box->sbx = sbx;
    box->over = true;
}

static void on_keeper(void *user, kg_keeper_event_t event, const kg_err_t *err)
{
    box_t *box = user;
    if (event != KG_KEEPER_READY) {
        fprintf(stderr, "box: keeper lost: %s\n", err ? err->message : "");
        box->over = true;
        return;
    }
    const char *launcher = getenv("SANDAL_TEST_ISOLATION"); /* NOLINT(concurrency-mt-unsafe) */
    kg_node_t node;
    char id[KG_ID_MAX];
    kg_node_generate(&node);
    kg_id_generate(&node, "sbx", id);
    const kg_sandbox_opts_t opts = {.id = id, .launcher = launcher ? launcher : "none"};
    kg_err_t why = {0};
    if (kg_sandbox_create(box->keeper, &opts, on_created, box, &why) < 0) {
        fprintf(stderr, "box: %s\n", why.message);
        box->over = true;
    }
}

static bool start_keeper(box_t *box)
{
    char state[80];
    char runtime[80];
    (void)kg_format(state, sizeof state, "%s/state", box->dir);
    (void)kg_format(runtime, sizeof runtime, "%s/run", box->dir);
    uint32_t random_number = 0;
    if (getrandom(&random_number, sizeof random_number, 0) < 0) {
        return false;
    }
    const kg_keeper_private_t opts = {.keeper_exe = SANDAL_KEEPER,
                                      .init_exe = SANDAL_INIT,
                                      .state_dir = state,
                                      .runtime_dir = runtime,
                                      .uid_base =
                                          test_uid_base(0xf0000000U, 0x80000U, 480, random_number),
                                      .uid_count = 0x80000U};
    int fd = -1;
    int rc = kg_keeper_start_private(&opts, &box->keeper_pid, &fd);
    kg_err_t err = {0};
    if (rc == 0) {
        rc = kg_keeper_connect(box->loop, fd, on_keeper, box, &box->keeper, &err);
    }
    if (rc < 0) {
        fprintf(stderr, "box: keeper: %s %s\n", strerrordesc_np(-rc), err.message);
    }
    return rc == 0;
}

box_t *box_open(kg_loop_t *loop)
{
    box_t *box = calloc(1, sizeof(*box));
    box->loop = loop;
    (void)kg_format(box->dir, sizeof box->dir, "/tmp/sandal-box-XXXXXX");
    if (!mkdtemp(box->dir) || chmod(box->dir, 0755) < 0 ||
        kg_timer_create(loop, tick, box, &box->timer) < 0 || !start_keeper(box)) {
        return NULL;
    }
    wait_over(box);
    if (!box->sbx) {
        return NULL;
    }
    (void)kg_format(box->run_dir, sizeof box->run_dir, "%s", kg_sbx_info(box->sbx)->run_dir);
    return box;
}

kg_sbx_t *box_sbx(const box_t *box)
{
    return box->sbx;
}

unsigned box_run_files(const box_t *box)
{
    DIR *d = opendir(box->run_dir);
    unsigned n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) { /* NOLINT(concurrency-mt-unsafe) */
        n += e->d_name[0] != '.';
    }
    if (d) {
        closedir(d);
    }
    return n;
}

void box_lose(box_t *box)
{
    kill(kg_sbx_info(box->sbx)->init_pid, SIGKILL);
    box->run_dir[0] = '\0'; /* nobody is left to tidy it up until the destroy */
}

static void destroyed(void *user, const kg_err_t *err)
{
    (void)err;
    box_t *box = user;
    box->over = true;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    (void)remove(path);
    return 0;
}

void box_close(box_t **box_ptr)
{
    box_t *box = *box_ptr;
    *box_ptr = NULL;
    box->over = false;
    kg_sbx_destroy(&box->sbx, false, destroyed, box);
    wait_over(box);
    if (!box->over) {
        fprintf(stderr, "box: the sandbox was not destroyed\n");
        abort();
    }
    kg_keeper_close(&box->keeper);
    kg_timer_close(&box->timer);
    (void)waitpid(box->keeper_pid, NULL, 0);
    (void)nftw(box->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS); /* NOLINT(concurrency-mt-unsafe) */
    free(box);
}
