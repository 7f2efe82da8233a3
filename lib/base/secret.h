/*
 * secret.h - the secret that the ranks of a job share, and proofs of knowing it. A proof is a keyed hash
 * (HMAC-SHA-512/256) of a label, which says who proves what to whom, and of a message that holds a challenge
 * of the other side. The secret itself never leaves a process; who hears proofs can try guesses against
 * them, so what users give has at least NRL_SECRET_MIN bytes. [any]
 */
#ifndef MESH_SECRET_H
#define MESH_SECRET_H
#include <nrl/run.h>

enum { SECRET_PROOF = 32, SECRET_NONCE = 32 };

typedef nrl_job_secret secret_key;

/* The key of one job: the same text gives another key for another run_id. */
void secret_derive(const void *text, size_t size, const char *run_id, secret_key *out);
void secret_random(void *bytes, size_t size);
void secret_prove(const secret_key *s, const char *label, const void *message, size_t size,
                  unsigned char proof[SECRET_PROOF]);
bool secret_verify(const secret_key *s, const char *label, const void *message, size_t size,
                   const unsigned char proof[SECRET_PROOF]);
void secret_wipe(void *bytes, size_t size); /* is not optimised away */

#endif
