/*
 * gradcheck.c - nrl.gradcheck(name [, {extra = {...}, tolerance = 0.005}]): nrl_gradcheck on a loss of nrl.loss.
 */
#include "loss.h"
#include "permit.h"
#include <nrl/harness.h>

enum { MAX_EXTRA = 8 };

/* No config says which plugins are allowed, but the command line may. */
static nrl_status check(script_host *h, const char *name, const nrl_gradcheck_options *o, arena *a, double *worst)
{
    const nrl_node *plugins = script_plugins(h);
    nrl_environment env;
    script_loss *loss;
    NRL_TRY(script_permit(h, plugins, NRL_KIND_BACKEND, "backend", o->backend, a, &env));
    NRL_TRY(script_loss_create(h, name, plugins, &loss));
    nrl_status st = nrl_gradcheck(&env, &loss->table, loss, o, worst);
    script_loss_destroy(loss);
    return st;
}

int script_gradcheck(lua_State *L)
{
    static const char *const keys[] = {"extra", "tolerance", NULL};
    script_host *h = script_of(L);
    nrl_gradcheck_options o = {.size = sizeof o, .backend = "cpu", .tolerance = 0.005};
    double worst;
    const char *name = luaL_checkstring(L, 1);
    if (!script_find_loss(h, name)) return script_fail(L, "nrl.gradcheck: unknown loss '%s'", name);
    if (h->call.open) return script_fail(L, "cannot call nrl.gradcheck from a loss");
    if (!lua_isnoneornil(L, 2)) {
        size_t n_extra;
        script_check_keys(L, 2, "nrl.gradcheck", keys);
        o.tolerance = script_f64(L, 2, "nrl.gradcheck", "tolerance", o.tolerance);
        o.extra = (const char *const *)script_texts(L, 2, "nrl.gradcheck", "extra", &n_extra);
        if (n_extra > MAX_EXTRA) return script_fail(L, "nrl.gradcheck: extra: expected at most %d names", MAX_EXTRA);
        o.n_extra = (uint32_t)n_extra;
    }
    h->from_callback = false;
    h->L = L;
    h->rules = script_rules_of(NULL);
    nrl_status st = check(h, name, &o, script_arena(L), &worst);
    if (st != NRL_OK) return script_raise(L, st);
    lua_pushnumber(L, worst);
    return 1;
}
