// Package accounts authenticates the users of a frontend: the server administrators of [admins],
// and the users of the database _users.
//
// All frontends of a store accept the same passwords and the same cookies. They share these keys,
// tuples below a prefix of the store:
//
//	("secret")      -> the secret that signs cookies, unless the configuration has one
//	("admin", name) -> the hash of an administrator's password that the configuration has in
//	                   plain text. The first frontend that hashes it chooses the salt.
//	("onetime", step, name) -> the id of the login with the user's one-time password of a time
//	                   step, 30 seconds since the epoch; kept for an hour
//
// # What is sealed
//
// With a Sealer the secret of sessions is sealed, and so are the documents of databases of users
// ([IsDatabase]), because they contain the keys of one-time passwords. The caller passes
// IsDatabase to [docstore.Open], which seals all revisions and local documents, as for replicator
// databases. A document that cannot be opened, because its key is lost, is treated as missing.
//
// # One-time passwords
//
// A one-time password is accepted for one login, and rules out passwords of earlier time steps (RFC
// 6238, section 5.2). The transaction that records the login checks both, so they hold across
// frontends. Each such login removes the rows that are older than an hour, including rows of
// deleted users, so they need no upkeep. A used one-time password counts as a wrong one before
// the password is checked. A login without a second factor writes nothing.
//
// # What a login costs
//
// Hashing a password is slow, so that guessing is slow. To protect the node, at most as many
// passwords are hashed at a time as there are processors, and a bounded number waits. Further
// logins, and those that wait for too long, fail with [ErrBusy]; an address with half of the
// waiting logins gets [ErrTooMany], and so does one with several new passwords under way in
// documents that no administrator writes. A successful login is remembered until it is not repeated for
// a minute, as long as its account does not change, so that clients that send their password with
// each request do not wait. The remembered form does not reveal the password.
//
// An unknown name is hashed, counted and locked like a known one.
//
// # Old hashes
//
// If a login's password has a weaker hash than a new one would be (another scheme, fewer
// iterations, or as many with a weaker pseudorandom function), the hash is renewed, as in CouchDB ([chttpd_auth]
// upgrade_hash_on_auth). [Accounts.RenewHashes] does that after the login, one hash at a time,
// from a bounded queue. It writes only if the account has not changed since the password was
// checked: the revision of a user's document, the value of [admins] in the store, or the row
// ("admin", name). Other values of [admins] are not renewed. A hash with more iterations than a
// new one is kept, so frontends with different settings do not undo each other's work. A renewed
// hash keeps the salt, so sessions stay valid. Waiting feeds end, as with any change of an account.
//
// The new revision of a user's document is the same on all servers with the same settings,
// CouchDBs included. Otherwise the user of an account that is replicated, and that has logged in
// at two servers, would have a document with conflicts, and could log in at none.
//
// # What a revision tells
//
// The revision of a user's document is the hash that CouchDB computes over its members. The
// revision is no faster way to guess a password. A guess needs the salt, which is only shown
// together with the hashed password, and the hashed password has to be computed for each guess. The
// key of one-time passwords is hashed together with the salt and the hashed password. A document
// without a password cannot be used to log in.
//
// # Repeated failures
//
// As in CouchDB a name is locked, for the address of the failed logins, after some of them and
// for some time ([ErrLocked]), even for the right password. Logins are also delayed, longer with
// each failure: by the failures of their address, for any names, and by fewer seconds by the
// failures of their name, from any addresses. An address with many delayed logins gets
// [ErrTooMany]. Each frontend counts for itself, in bounded memory.
//
// The package starts no goroutines: the caller runs RenewHashes in one.
package accounts
