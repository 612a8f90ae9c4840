/* A main() for fuzz targets without libFuzzer: replays every file named on the command line (or in
 * the folders named there) through LLVMFuzzerTestOneInput, so that corpora are regression tests of
 * the ordinary suite. Fails when it was given nothing to replay. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rbe");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    struct stat st;
    if (fstat(fileno(file), &st) < 0 || st.st_size < 0) {
        fclose(file);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    /* Exactly as long as the input, so that AddressSanitizer sees a read past its end. */
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        fclose(file);
        return -1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    (*count)++;
    return 0;
}

static int replay_folder(const char *path, size_t *count)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    int r = 0;
    for (int i = 0; i < n; i++) {
        char file[4096];
        int len = snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' &&
            (len < 0 || (size_t)len >= sizeof(file) || replay_file(file, count) < 0)) {
            r = -1;
        }
        free(entries[i]);
    }
    free(entries);
    return r;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    int r = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) < 0) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            r = -1;
        } else if ((S_ISDIR(st.st_mode) ? replay_folder : replay_file)(argv[i], &count) < 0) {
            r = -1;
        }
    }
    printf("%zu inputs replayed\n", count);
    return r == 0 && count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
