/*
 * host.h - for frontends and embedders that open plugins themselves: the base of a loss, a frontend for a
 * script. [main] unless said.
 */
#ifndef NRL_HOST_H
#define NRL_HOST_H
#include <nrl/frontend.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a plugin with its options ---- */

typedef struct nrl_component nrl_component;

/* Finds the plugin of this kind that `config` names, a word or a map with `name` and its options, and fills its
 * options. `section` names the place in messages. Searched are env->plugin_path and the installed folder.
 * NRL_ERR_CONFIG with all mistakes, NRL_ERR_PLUGIN. `config` outlives the component. */
NRL_API nrl_status nrl_component_open(const nrl_environment *env, uint32_t kind, const char *section,
                                      const nrl_node *config, nrl_component **out);
NRL_API void nrl_component_close(nrl_component *c); /* what the plugin made is destroyed before; NULL is fine */
/* The table of the kind, whose first member this is; zero beyond what the plugin knows. As long as the component. */
NRL_API const nrl_plugin *nrl_component_table(const nrl_component *c);
NRL_API void *nrl_component_options(const nrl_component *c); /* never NULL */
/* "0.1.0, 1f3a...": version, and hash of the file. As long as the component; NULL with NRL_ERR_IO. */
NRL_API const char *nrl_component_identity(nrl_component *c);

/* Why a file cannot be used is found out when a plugin is opened: this list names all there are of a kind, NULL-ended,
 * sorted, in `memory`. */
NRL_API const char *const *nrl_plugin_names(const nrl_environment *env, uint32_t kind, nrl_arena *memory);

/* Writes whose code an address is, "optimizer 'NAME'", into text[room]; false where it is no plugin's. Allocates
 * nothing: for handlers of crashes. [any] */
NRL_API bool nrl_plugin_locate(const void *address, char *text, size_t room);

/* ---- scripts ---- */

/* The frontend for a script: the one that `name` names (a word, or {name: NAME, option: value}), else the one whose
 * probe serves the path. *out is NULL where `name` is NULL and none serves it. NRL_ERR_CONFIG where several do. */
NRL_API nrl_status nrl_frontend_find(const nrl_environment *env, const char *name, const char *path,
                                     nrl_component **out);
/* Runs a script to its end with that frontend. `job` as in nrl/frontend.h; `frontend` of its environment is set here.
 */
NRL_API nrl_status nrl_frontend_run(nrl_component *frontend, const nrl_frontend_job *job, int *exit_code);

/* ---- a loss, tried ---- */

typedef struct {
    uint32_t size;
    uint32_t n_extra;
    const char *backend;      /* name of the backend plugin to compute on; one whose memory the host can read */
    const char *const *extra; /* [n_extra] columns of data.extra that the loss reads, at most 8 */
    double tolerance;         /* of the gradient, relative to 1 or to it; 0 = 0.005 */
} nrl_gradcheck_options;

/* Tries a loss on a small made-up batch. The gradient of the log-probs must be what differences of the loss give, and
 * loss and weight must be sums over examples, so that splitting a batch changes nothing. A kink (relu, clamp) near a
 * value may fail without being wrong. *worst is the largest difference. NRL_ERR_CONFIG names what differs. */
NRL_API nrl_status nrl_gradcheck(const nrl_environment *env, const nrl_algorithm *loss, void *self,
                                 const nrl_gradcheck_options *options, double *worst);

#ifdef __cplusplus
}
#endif
#endif
