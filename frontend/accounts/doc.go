// Package accounts knows who may log in to a frontend: the server administrators of [admins], and
// the users of the database _users.
//
// All frontends of a store take the same passwords and the same cookies. What they have in
// common is below a prefix of the store, as tuples:
//
//	("secret")      -> what cookies are signed with, where the configuration says nothing
//	("admin", name) -> the password of an administrator whom the configuration has in plain
//	                   text, hashed. Who hashes it first decides about the salt.
//	("onetime", step, name) -> the id of the login with the user's one-time password of a time
//	                   step, 30 seconds since the epoch; for an hour
//
// # What is sealed
//
// With a Sealer the secret of sessions is sealed, and so are the documents of databases of users
// ([IsDatabase]) as a whole, because they hold the keys of one-time passwords. The caller passes
// IsDatabase to [docstore.Open], which seals all revisions and local documents, as it does for
// replicator databases. Sealing the member totp alone would be a second mechanism, which every reader of
// these documents would have to know. A document that cannot be opened, because its key is lost, is treated
// as missing.
//
// # One-time passwords
//
// A one-time password is good for one login, and ends those of earlier time steps (RFC 6238, section
// 5.2). The transaction that records the login checks that, so it holds across frontends. Rows are ordered
// by time, and each login with a one-time password removes the rows that are older than an hour. So they
// need no upkeep, and those of deleted users go too. A used one-time password is treated as a wrong one
// before the password is checked. A login without a second factor writes nothing.
//
// # What a login costs
//
// Passwords are hashed so slowly that guessing them is, too. So that nobody can keep a node
// busy with that, no more of them are hashed at a time than there are processors, and some more wait;
// what is beyond, or waits for long, is refused ([ErrBusy]), and so is who has half of them
// ([ErrTooMany]). A login that succeeded is remembered until it was not made for a minute, in a
// form from which no password can be had, and no longer than its account stays as it is: clients
// that send their password with each request are not held up.
//
// A name that does not exist is hashed, counted and locked as one that does.
//
// # Old hashes
//
// If a login's password has a weaker hash than a new one would be (another scheme, a weaker
// pseudorandom function, fewer iterations), the hash is renewed, as in CouchDB ([chttpd_auth]
// upgrade_hash_on_auth). [Accounts.RenewHashes] does that after the login, one hash at a time, from a
// bounded queue. It writes only if the account is still as it was when the password was checked: the
// revision of a user's document, the value of [admins] in the store, or the row ("admin", name). Other
// values of [admins] stay as they are. A renewed hash is weaker than the old one in no respect, so
// frontends with different settings do not undo each other's work. Its salt stays, so sessions go on.
// Feeds that wait end, as with any change of an account.
//
// # Repeated failures
//
// As in CouchDB a name is locked, for the address that the failures came from, after some of
// them, and for some time ([ErrLocked]); the right password does not help. Besides, attempts wait,
// the longer the more have failed: those of an address, whichever names it tries, and, less so,
// those of a name, wherever they come from; who has many of them wait is refused ([ErrTooMany]).
// Each frontend counts for itself, in a bounded room.
//
// The package starts no goroutines: RenewHashes runs in one of its caller's.
package accounts
