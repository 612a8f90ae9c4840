/* gateway/context: runs by their ids. */
#include "gateway/context/run_table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/context/internal.h"

enum {
    ROWS_MIN = 64,
};

/* FNV-1a: the ids are ours. */
static uint32_t hash_of(const char *id)
{
    uint32_t hash = 2166136261U;
    for (; *id; id++) {
        hash = (hash ^ (unsigned char)*id) * 16777619U;
    }
    return hash;
}

static kg_run_t **row_of(kg_run_t **rows, size_t len, const char *id)
{
    return &rows[hash_of(id) & (len - 1)];
}

static void move_all(kg_run_t **from, kg_run_t **rows, size_t len)
{
    while (*from) {
        kg_run_t *run = *from;
        kg_run_t **row = row_of(rows, len, run->id);
        *from = run->same_row;
        run->same_row = *row;
        *row = run;
    }
}

static void grow(kg_run_table_t *table)
{
    size_t len = table->rows_len ? table->rows_len * 2 : ROWS_MIN;
    kg_run_t **rows = calloc(len, sizeof(kg_run_t *));
    if (!rows) {
        return;
    }
    move_all(&table->few, rows, len);
    for (size_t i = 0; i < table->rows_len; i++) {
        move_all(&table->rows[i], rows, len);
    }
    free(table->rows);
    table->rows = rows;
    table->rows_len = len;
}

static kg_run_t **chain_of(kg_run_table_t *table, const char *id)
{
    return table->rows ? row_of(table->rows, table->rows_len, id) : &table->few;
}

void kg_run_table_add(kg_run_table_t *table, kg_run_t *run)
{
    if (table->count >= table->rows_len) {
        grow(table);
    }
    kg_run_t **chain = chain_of(table, run->id);
    run->same_row = *chain;
    *chain = run;
    table->count++;
}

void kg_run_table_remove(kg_run_table_t *table, kg_run_t *run)
{
    kg_run_t **at = chain_of(table, run->id);
    while (*at && *at != run) {
        at = &(*at)->same_row;
    }
    if (!*at) {
        return;
    }
    *at = run->same_row;
    run->same_row = NULL;
    if (--table->count == 0) {
        free(table->rows);
        *table = (kg_run_table_t){0};
    }
}

kg_run_t *kg_run_table_find(const kg_run_table_t *table, const char *id)
{
    kg_run_t *run = table->rows ? *row_of(table->rows, table->rows_len, id) : table->few;
    while (run && strcmp(run->id, id) != 0) {
        run = run->same_row;
    }
    return run;
}
