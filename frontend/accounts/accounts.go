package accounts

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"settee/frontend/internal/auth"
	"settee/frontend/internal/networks"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// The errors of a login.
var (
	// ErrWrong: the name or the password is wrong; it does not say which.
	ErrWrong = errors.New("name or password is incorrect")
	// ErrLocked: the account is locked after too many failures.
	ErrLocked = errors.New("account is temporarily locked due to multiple authentication failures")
	// ErrTooMany: too many logins, or new passwords, from one address are being checked or wait.
	ErrTooMany = errors.New("too many attempts to log in from one address")
	// ErrBusy: too many passwords wait to be hashed.
	ErrBusy = errors.New("too many passwords are being checked")
	// ErrConflicts: the password is right, but the account's document has conflicts.
	ErrConflicts = errors.New("user document conflicts must be resolved before the document is used for authentication purposes")
)

// ErrNoAdmin refuses a change of the configuration, see [KeepAdmin].
var ErrNoAdmin = errors.New("no server administrator could log in any more: add another one to [admins] first")

// Configuration has the administrators and the settings. *config.Live implements it.
type Configuration interface {
	Current() *config.Config
	SetFirst(ctx context.Context, section, key, text string) (bool, error)
	Replace(ctx context.Context, section, key, was, text string) (bool, error)
}

// Options are the options of [Open].
type Options struct {
	// Store and Prefix are where the data shared by frontends is.
	Store  kv.Database
	Prefix []byte
	// Sealer seals the secret of sessions. Default: none.
	Sealer kv.Sealer
	// Documents has the database _users.
	Documents *docstore.Store
	Config    Configuration
	// Log gets failed logins.
	Log zerolog.Logger
}

// Accounts are the accounts of a store. They are safe for concurrent use.
type Accounts struct {
	store  kv.Database
	space  tuple.Subspace
	docs   *docstore.Store
	config Configuration
	log    zerolog.Logger

	secret  string   // signs cookies, unless the configuration has one
	process [32]byte // the key of MACs in memory
	hashing chan struct{}
	waiting chan struct{} // for hashing
	verify  func(auth.Hash, string) bool

	failures *failures
	recent   *recent

	mu     sync.Mutex // guards the fields below; never held during I/O
	hashed map[string]hashedAdmin
	// signing is the secret that has signed cookies last, and former the earlier ones, the latest first.
	signing string
	former  []formerSecret
	// renewals is the queue of RenewHashes. renewing has the names in the queue and the name
	// being renewed.
	renewals chan renewal
	renewing map[string]bool
}

// hashedAdmin is the hash of an administrator's password that the configuration has in plain
// text.
type hashedAdmin struct {
	plain [32]byte // the MAC of the plain text
	hash  auth.Hash
}

const (
	// maxWaiting is how many logins may wait for hashing, and hashWithin how long.
	maxWaiting = 100
	hashWithin = 10 * time.Second
)

// Open reads the data shared by frontends, or creates it, and hashes the plain passwords of
// administrators.
func Open(ctx context.Context, opts Options) (*Accounts, error) {
	a := &Accounts{
		store: opts.Store, space: tuple.SubspaceFromBytes(opts.Prefix), docs: opts.Documents, config: opts.Config, log: opts.Log,
		hashing: make(chan struct{}, runtime.GOMAXPROCS(0)), waiting: make(chan struct{}, maxWaiting), verify: auth.Hash.Verify,
		failures: newFailures(), recent: newRecent(), hashed: map[string]hashedAdmin{},
		renewals: make(chan renewal, maxRenewals), renewing: map[string]bool{},
	}
	_, _ = rand.Read(a.process[:]) // never fails
	var err error
	if a.secret, err = readSecret(ctx, a.store, a.space, opts.Sealer); err != nil {
		return nil, fmt.Errorf("reading the secret of sessions: %w", err)
	}
	a.signing = a.cookieSecret()
	for name, text := range config.Admins.Get(opts.Config.Current()) {
		if _, known, err := a.admin(ctx, name); err != nil {
			return nil, err
		} else if !known {
			a.log.Warn().Str("name", name).Bool("hashed", config.Hashed(text)).
				Msg("this administrator cannot log in: the password looks hashed, but is malformed or has too many iterations")
		}
	}
	return a, nil
}

// HasAdmin reports whether there is a server administrator.
func (a *Accounts) HasAdmin() bool { return len(config.Admins.Get(a.config.Current())) > 0 }

// FirstAdmin is the name of the first administrator of a store.
const FirstAdmin = "admin"

// MakeAdmin adds the administrator FirstAdmin, if there is none, and returns the password, which
// is not stored. The password is empty if there is an administrator, or if another node was
// faster.
func (a *Accounts) MakeAdmin(ctx context.Context) (password string, err error) {
	if a.HasAdmin() {
		return "", nil
	}
	password = rand.Text()
	hash, err := a.Hash(ctx, password)
	if err != nil {
		return "", err
	}
	first, err := a.config.SetFirst(ctx, "admins", FirstAdmin, hash.String())
	if err != nil || !first {
		return "", err
	}
	return password, nil
}

// Hash hashes a new password. It returns ErrBusy or ctx's error.
func (a *Accounts) Hash(ctx context.Context, password string) (auth.Hash, error) {
	prf, iterations := ofNewHashes(a.config.Current())
	var hash auth.Hash
	err := a.slowly(ctx, func() { hash = auth.NewHash(password, prf, iterations) })
	return hash, err
}

// HashPassword returns a hash of a password, in the form of [admins].
func HashPassword(cfg *config.Config, password string) string {
	prf, iterations := ofNewHashes(cfg)
	return auth.NewHash(password, prf, iterations).String()
}

// ofNewHashes returns the pseudorandom function and the iterations of new hashes, limited to the
// iterations that a login accepts.
func ofNewHashes(cfg *config.Config) (prf string, iterations int) {
	return config.PasswordPRF.Get(cfg), min(config.PasswordIterations.Get(cfg), config.MaxPasswordIterations.Get(cfg))
}

// slowly calls do, which takes a processor for long, when one is free. It returns ErrBusy or
// ctx's error.
func (a *Accounts) slowly(ctx context.Context, do func()) error {
	select {
	case a.waiting <- struct{}{}:
		defer func() { <-a.waiting }()
	default:
		return ErrBusy
	}
	timer := time.NewTimer(hashWithin)
	defer timer.Stop()
	select {
	case a.hashing <- struct{}{}:
		defer func() { <-a.hashing }()
	case <-timer.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
	do()
	return nil
}

// account is an account for a login.
type account struct {
	auth.User
	hash      auth.Hash
	second    *auth.OneTime // nil: the password is enough
	conflicts bool
	replace   replace // nil: the hash stays as it is
}

// find returns the account with a name. known is false if there is none.
func (a *Accounts) find(ctx context.Context, name string) (found account, known bool, err error) {
	if found, known, err = a.admin(ctx, name); err != nil || known {
		return found, known, err
	}
	return a.user(ctx, name)
}

// admin returns the account of a server administrator.
func (a *Accounts) admin(ctx context.Context, name string) (account, bool, error) {
	cfg := a.config.Current()
	text, known := config.Admins.Get(cfg)[name]
	if !known {
		return account{}, false, nil
	}
	found := account{User: auth.User{Name: name, Roles: []string{auth.AdminRole}}}
	if hash, hashed, _ := auth.ParseAdmin(text); hashed {
		found.hash = hash
		if config.Admins.From(cfg, name) == config.OriginStore.String() {
			found.replace = a.replaceInConfig(name, text)
		}
		return found, admits(cfg, text), nil
	}
	var err error
	found.hash, err = a.hashAdmin(ctx, name, text)
	found.replace = a.replaceAgreed(name, text, found.hash)
	return found, err == nil, err
}

// admits reports whether an administrator with this value of [admins] can log in. That is false
// for a malformed hash or one with too many iterations.
func admits(cfg *config.Config, text string) bool {
	hash, _, err := auth.ParseAdmin(text)
	return err == nil && hash.Iterations <= config.MaxPasswordIterations.Get(cfg)
}

// KeepAdmin is a [config.Check]. It returns ErrNoAdmin for a change after which no server
// administrator can log in, if one could before.
func KeepAdmin(before, after *config.Config) error {
	if countAdmins(before) > 0 && countAdmins(after) == 0 {
		return ErrNoAdmin
	}
	return nil
}

// countAdmins returns the number of server administrators that can log in.
func countAdmins(cfg *config.Config) (n int) {
	for _, text := range config.Admins.Get(cfg) {
		if admits(cfg, text) {
			n++
		}
	}
	return n
}

// HashedAdmins returns, by name, the hashes of administrators' passwords that the configuration
// has in plain text, in the form of [admins].
func (a *Accounts) HashedAdmins(ctx context.Context, cfg *config.Config) (map[string]string, error) {
	all := map[string]string{}
	for name, text := range config.Admins.Get(cfg) {
		if _, hashed, _ := auth.ParseAdmin(text); hashed {
			continue
		}
		hash, err := a.hashAdmin(ctx, name, text)
		if err != nil {
			return nil, err
		}
		all[name] = hash.String()
	}
	return all, nil
}

// hashAdmin returns the hash of a plain password in the configuration: the stored one or a new
// one.
func (a *Accounts) hashAdmin(ctx context.Context, name, plain string) (auth.Hash, error) {
	mac := auth.MAC(a.process[:], name, plain)
	a.mu.Lock()
	known, found := a.hashed[name]
	a.mu.Unlock()
	if found && known.plain == mac {
		return known.hash, nil
	}
	hash, err := a.agree(ctx, name, plain)
	if err != nil {
		return auth.Hash{}, fmt.Errorf("hashing the password of the administrator %q: %w", name, err)
	}
	a.mu.Lock()
	a.hashed[name] = hashedAdmin{mac, hash}
	a.mu.Unlock()
	return hash, nil
}

// agree returns the hash of a password that all frontends share. Hashing is too slow for a
// transaction, so the stored hash is read, compared, and replaced unless it has changed
// meanwhile.
func (a *Accounts) agree(ctx context.Context, name, plain string) (auth.Hash, error) {
	key := a.space.Pack("admin", name)
	stored, err := kv.TransactValue(ctx, a.store, func(tx kv.Transaction) ([]byte, error) { return tx.Get(key).Await() })
	if err != nil {
		return auth.Hash{}, err
	}
	var own auth.Hash
	for {
		hash, _, _ := auth.ParseAdmin(string(stored))
		same := false
		if err := a.slowly(ctx, func() { same = a.verify(hash, plain) }); err != nil || same {
			return hash, err
		}
		if own.Key == "" {
			if own, err = a.Hash(ctx, plain); err != nil {
				return auth.Hash{}, err
			}
		}
		before := stored
		stored, err = kv.TransactValue(ctx, a.store, func(tx kv.Transaction) ([]byte, error) {
			now, err := tx.Get(key).Await()
			if err != nil || !bytes.Equal(now, before) {
				return now, err
			}
			tx.Set(key, []byte(own.String()))
			return []byte(own.String()), nil
		})
		switch {
		case err != nil:
			return auth.Hash{}, err
		case string(stored) == own.String():
			return own, nil
		}
	}
}

// Login returns the user with a name and a password. address is the client's. A user with a
// second factor must use LoginTwice instead; for such a user every password is wrong.
//
// A server administrator has the roles of [admins] only, see WithDocumentRoles.
//
// The error is one of this package's, the store's, or ctx's.
func (a *Accounts) Login(ctx context.Context, name, password, address string) (auth.User, error) {
	return a.login(ctx, name, password, address, func(second *auth.OneTime) (int64, bool, error) { return 0, second == nil, nil })
}

// LoginTwice is Login with a one-time password, which is checked if the user has a second factor.
// It is accepted once.
func (a *Accounts) LoginTwice(ctx context.Context, name, password, oneTime, address string) (auth.User, error) {
	return a.login(ctx, name, password, address, func(second *auth.OneTime) (int64, bool, error) {
		var step int64
		var right bool
		if second != nil {
			step, right = second.Verify(oneTime, time.Now())
		}
		if !right {
			step, _ = auth.OneTimeSteps(time.Now())
		}
		// The row is read for every name and password, so that the time does not reveal anything.
		fresh, err := a.isFresh(ctx, name, step)
		return step, second == nil || right && fresh, err
	})
}

// login checks a password and, by calling passes, a second factor. passes returns the time step
// of a right one-time password.
func (a *Accounts) login(
	ctx context.Context, name, password, address string, passes func(*auth.OneTime) (step int64, right bool, err error),
) (auth.User, error) {
	found, known, err := a.find(ctx, name)
	if err != nil {
		return auth.User{}, err
	}
	if !known {
		found = account{hash: a.decoyHash()}
	}
	cfg := a.config.Current()
	attempt := attempt{name: name, salt: found.hash.Salt, address: networks.Of(address), lockout: lockoutOf(cfg)}
	if a.failures.locked(attempt, time.Now()) {
		return auth.User{}, a.refuse(attempt, ErrLocked)
	}
	login := auth.MAC(a.process[:], name, password, found.hash.String(), string(found.hash.Scheme), found.hash.Key)
	step, second, err := passes(found.second)
	if err != nil {
		return auth.User{}, err
	}
	if known && second && a.recent.has(login, time.Now()) {
		return a.result(ctx, attempt, found, step)
	}
	end, err := a.failures.begin(ctx, attempt)
	if err != nil {
		return auth.User{}, err
	}
	defer end()
	right, locked := false, false
	err = a.slowly(ctx, func() {
		// Other logins were checked meanwhile: guesses, or requests of the same client, which may
		// start with many at once.
		if locked = a.failures.locked(attempt, time.Now()); locked {
			return
		}
		if right = known && second && a.recent.has(login, time.Now()); right {
			return
		}
		if right = a.verify(found.hash, password) && known && second; right {
			a.recent.add(login, time.Now())
		} else {
			a.failures.add(attempt, time.Now())
			a.lengthen(found.hash, password)
		}
	})
	switch {
	case err != nil:
		return auth.User{}, err
	case locked:
		return auth.User{}, a.refuse(attempt, ErrLocked)
	case !right:
		return auth.User{}, a.refuse(attempt, ErrWrong)
	}
	user, err := a.result(ctx, attempt, found, step)
	if err == nil {
		a.offer(found, password)
	}
	return user, err
}

// result returns the user of an account after its passwords were found right. If the account has
// a second factor, it uses up the one-time password of the time step.
func (a *Accounts) result(ctx context.Context, at attempt, found account, step int64) (auth.User, error) {
	if found.conflicts {
		return auth.User{}, ErrConflicts
	}
	if found.second == nil {
		return found.User, nil
	}
	fresh, err := a.use(ctx, found.Name, step)
	if err != nil {
		return auth.User{}, err
	}
	if !fresh { // another login used it first
		a.failures.add(at, time.Now())
		return auth.User{}, a.refuse(at, ErrWrong)
	}
	return found.User, nil
}

func (a *Accounts) refuse(at attempt, reason error) error {
	a.log.Warn().Str("name", at.name[:min(len(at.name), maxLogged)]).Str("from", at.address).Str("reason", reason.Error()).
		Msg("a login failed")
	return reason
}

// maxLogged is the most bytes of a name that are logged.
const maxLogged = 100

// lengthen adds the time by which checking a hash is shorter than checking the decoy. An old hash
// with few iterations would reveal otherwise that the account exists.
func (a *Accounts) lengthen(h auth.Hash, password string) {
	rest := a.decoyHash()
	if h.Scheme != auth.Simple {
		rest.Iterations -= h.Iterations
	}
	if rest.Iterations > 0 {
		a.verify(rest, password)
	}
}

// decoyHash returns the hash that is checked for an unknown name, which takes as long as a known
// one.
func (a *Accounts) decoyHash() auth.Hash {
	prf, iterations := ofNewHashes(a.config.Current())
	return auth.Hash{
		Scheme: auth.PBKDF2, PRF: prf, Iterations: iterations,
		Salt: hex.EncodeToString(a.process[:16]), Key: "none",
	}
}

// SignSession returns the value of a session cookie for a user that has just logged in. It
// returns ErrWrong if the account was deleted meanwhile.
func (a *Accounts) SignSession(ctx context.Context, name string) (string, error) {
	found, known, err := a.find(ctx, name)
	if err != nil {
		return "", err
	}
	if !known {
		return "", ErrWrong // the account was deleted meanwhile
	}
	return a.sign(found), nil
}

func (a *Accounts) sign(found account) string {
	algorithm := config.HashAlgorithms.Get(a.config.Current())[0]
	return auth.SignCookie(found.Name, time.Now(), a.cookieSecret(), found.hash.Salt, algorithm)
}

// Session returns the user that a cookie belongs to, or no user if the cookie has expired or is
// invalid. renewed is the value of a new cookie if one is due. The error is auth.ErrCookie, the
// store's, or ctx's.
func (a *Accounts) Session(ctx context.Context, value string) (user auth.User, renewed string, err error) {
	cookie, err := auth.ParseCookie(value)
	if err != nil {
		return auth.User{}, "", err
	}
	cfg := a.config.Current()
	timeout := config.SessionTimeout.Get(cfg)
	left := cookie.Left(time.Now(), timeout)
	if left <= 0 {
		return auth.User{}, "", nil
	}
	found, known, err := a.find(ctx, cookie.Name)
	if err != nil || !known || found.conflicts {
		return auth.User{}, "", err
	}
	signedBy := slices.IndexFunc(a.secretsOf(cookie), func(secret string) bool {
		return cookie.Verify(secret, found.hash.Salt, config.HashAlgorithms.Get(cfg))
	})
	if signedBy < 0 {
		return auth.User{}, "", nil
	}
	if signedBy > 0 || left < timeout*9/10 {
		renewed = a.sign(found)
	}
	return found.User, renewed, nil
}

// Fingerprint identifies a state of an account. It changes with the password and the roles, and
// when the account is deleted. Fingerprints of different processes differ.
type Fingerprint [32]byte

// Fingerprint returns the fingerprint of the account with a name, zero if there is none. The
// error is the store's or ctx's.
func (a *Accounts) Fingerprint(ctx context.Context, name string) (Fingerprint, error) {
	found, known, err := a.find(ctx, name)
	if err != nil || !known {
		return Fingerprint{}, err
	}
	user, err := a.WithDocumentRoles(ctx, found.User)
	if err != nil {
		return Fingerprint{}, err
	}
	return auth.MAC(a.process[:], append(slices.Clone(user.Roles), string(found.hash.Scheme), found.hash.Salt, found.hash.Key)...), nil
}

// Token returns the user of a JSON web token. The error is an *auth.TokenError.
func (a *Accounts) Token(token string) (auth.User, error) {
	cfg := a.config.Current()
	claims, _ := auth.ParseClaims(config.RequiredClaims.Get(cfg)) // config has checked the setting
	tokens := auth.Tokens{
		Keys: config.TokenKeys.Get(cfg), Required: claims,
		RolesPath: config.RolesClaimPath.Get(cfg), RolesName: config.RolesClaimName.Get(cfg),
	}
	user, err := tokens.Verify(token, time.Now())
	return auth.User{Name: user.Name, Roles: slices.Clip(user.Roles)}, err
}
