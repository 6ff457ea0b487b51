/* A tokenizer named cjk_unicode61 that passes every call to unicode61. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1
static fts5_api *find_api(sqlite3 *db) {
    fts5_api *api = 0;
    sqlite3_stmt *statement = 0;
    if (sqlite3_prepare(db, "SELECT fts5(?1)", -1, &statement, 0) == SQLITE_OK) {
        sqlite3_bind_pointer(statement, 1, (void *)&api, "fts5_api_ptr", 0);
        sqlite3_step(statement);
    }
    sqlite3_finalize(statement);
    return api;
}
int sqlite3_ftscjk_init(sqlite3 *db, char **error, const sqlite3_api_routines *routines) {
    SQLITE_EXTENSION_INIT2(routines);
    fts5_tokenizer wrapped;
    void *context = 0;
    fts5_api *api = find_api(db);
    if (api == 0 || api->xFindTokenizer(api, "unicode61", &context, &wrapped) != SQLITE_OK)
        return SQLITE_ERROR;
    return api->xCreateTokenizer(api, "cjk_unicode61", context, &wrapped, 0);
}
int sqlite3_extension_init(sqlite3 *db, char **error, const sqlite3_api_routines *routines) {
    return sqlite3_ftscjk_init(db, error, routines);
}
