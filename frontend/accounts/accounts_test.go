package accounts_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/faultkv"
)

func TestAdmins(t *testing.T) {
	t.Parallel()
	hash := auth.NewHash("older", "sha512", 5).String()
	n := open(t, memory(t), "admins/root=s3same", "admins/old="+hash, "admins/simple=-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt",
		"admins/bad=-pbkdf2-nonsense")
	n.is([]string{"root", "_admin"}, "root", "s3same")
	n.is([]string{"old", "_admin"}, "old", "older")
	n.is([]string{"simple", "_admin"}, "simple", "password")
	n.fails(accounts.ErrWrong, "root", "s3samf")
	n.fails(accounts.ErrWrong, "bad", "-pbkdf2-nonsense")
	n.fails(accounts.ErrWrong, "old", hash)
	n.fails(accounts.ErrWrong, "nobody", "s3same")
	n.fails(accounts.ErrWrong, "", "")
	assert.True(t, n.HasAdmin())
	assert.Contains(t, n.log.String(), "this administrator cannot log in")
	assert.NotContains(t, n.log.String(), "s3same")
}

// An administrator also has the roles of the document of the same name, but neither its password nor its conflicts count.
func TestRolesOfAdminsWithDocuments(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t), "admins/root=s3same")
	roles := func(name string, own ...string) []string {
		t.Helper()
		user, err := n.WithDocumentRoles(t.Context(), auth.User{Name: name, Roles: own})
		require.NoError(t, err)
		require.Equal(t, name, user.Name)
		return user.Roles
	}
	fingerprint := func() accounts.Fingerprint {
		t.Helper()
		of, err := n.Fingerprint(t.Context(), "root")
		require.NoError(t, err)
		return of
	}
	assert.Equal(t, []string{"_admin"}, roles("root", "_admin"))
	before := fingerprint()
	rev := n.user("root", "other", "editor", "_metrics", "x")
	n.user("ann", "pass", "blue")
	assert.Equal(t, []string{"_admin", "editor", "_metrics", "x"}, roles("root", "_admin"))
	assert.NotEqual(t, before, fingerprint())
	assert.Equal(t, []string{"blue"}, roles("ann", "blue"))
	assert.Equal(t, []string{"_admin"}, roles("ann", "_admin"), "[admins] does not name it")
	n.fails(accounts.ErrWrong, "root", "other")
	n.is([]string{"root", "_admin"}, "root", "s3same")

	db, err := n.docs.Database(t.Context(), accounts.Database)
	require.NoError(t, err)
	doc, err := db.Get(t.Context(), accounts.IDPrefix+"root", docstore.GetOptions{})
	require.NoError(t, err)
	results, err := db.Write(t.Context(), []docstore.Edit{{ID: doc.ID, Pos: 1, Path: []string{"zz"}, Body: docjson.Must(doc.Body)}}, docstore.WriteOptions{Replicated: true})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	n.is([]string{"root", "_admin"}, "root", "s3same")
	assert.Equal(t, []string{"_admin", "editor", "_metrics", "x"}, roles("root", "_admin"))
	n.write(rev, "root", map[string]any{"roles": []string{"z"}})
	assert.Equal(t, []string{"_admin", "z"}, roles("root", "_admin"))
}

func TestUsers(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t), "admins/root=s3same", "chttpd_auth/max_iterations=1000")
	n.fails(accounts.ErrWrong, "ann", "pass") // _users does not exist yet
	rev := n.user("ann", "pass", "staff", "blue")
	n.is([]string{"ann", "staff", "blue"}, "ann", "pass")
	rev = n.write(rev, "ann", map[string]any{"password": "word"})
	n.fails(accounts.ErrWrong, "ann", "pass") // although it was right before
	n.is([]string{"ann"}, "ann", "word")

	slow := auth.NewHash("x", "sha256", 1001)
	n.write(docstore.Rev{}, "slow", map[string]any{
		"password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "derived_key": slow.Key, "salt": slow.Salt, "iterations": slow.Iterations,
	})
	n.fails(accounts.ErrWrong, "slow", "x")
	n.write(docstore.Rev{}, "none", nil)
	n.fails(accounts.ErrWrong, "none", "")

	db, err := n.docs.Database(t.Context(), accounts.Database)
	require.NoError(t, err)
	forged, err := n.Document(t.Context(), accounts.Write{
		ID: "org.couchdb.user:eve", Admin: true, Body: docjson.Must(`{"type":"user","name":"eve","roles":[],"password":"p"}`),
	})
	require.NoError(t, err)
	forged = docjson.Must(strings.Replace(string(forged.Bytes()), `"roles":[]`, `"roles":["_admin","x"]`, 1))
	_, err = db.Put(t.Context(), docstore.Edit{ID: "org.couchdb.user:eve", Body: forged})
	require.NoError(t, err)
	n.is([]string{"eve", "x"}, "eve", "p")

	// The user of an account with conflicts cannot log in until an administrator has resolved
	// them.
	doc, err := db.Get(t.Context(), "org.couchdb.user:ann", docstore.GetOptions{})
	require.NoError(t, err)
	results, err := db.Write(t.Context(), []docstore.Edit{{ID: doc.ID, Pos: 2, Path: []string{"zz"}, Body: docjson.Must(doc.Body)}},
		docstore.WriteOptions{Replicated: true})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	n.fails(accounts.ErrConflicts, "ann", "word")
	n.fails(accounts.ErrWrong, "ann", "other")
	_, err = db.Put(t.Context(), docstore.Edit{ID: "org.couchdb.user:ann", Rev: docstore.Rev{Pos: 2, ID: "zz"}, Deleted: true})
	require.NoError(t, err)
	n.is([]string{"ann"}, "ann", "word")
	_, err = db.Put(t.Context(), docstore.Edit{ID: "org.couchdb.user:ann", Rev: rev, Deleted: true})
	require.NoError(t, err)
	n.fails(accounts.ErrWrong, "ann", "word")
}

// Frontends accept each other's hashes and cookies.
func TestFrontendsAgree(t *testing.T) {
	t.Parallel()
	db := memory(t)
	nodes := make([]*node, 4)
	var opening sync.WaitGroup
	for i := range nodes {
		opening.Go(func() { nodes[i] = open(t, db, "admins/root=s3same") })
	}
	opening.Wait()
	cookie := nodes[0].cookie("root")
	for _, n := range nodes {
		n.is([]string{"root", "_admin"}, "root", "s3same")
		name, _ := n.session(cookie)
		assert.Equal(t, "root", name)
	}
	// A new password ends the account's sessions.
	changed := open(t, db, "admins/root=other")
	changed.is([]string{"root", "_admin"}, "root", "other")
	name, _ := changed.session(cookie)
	assert.Empty(t, name)
	again := open(t, db, "admins/root=other")
	name, _ = again.session(changed.cookie("root"))
	assert.Equal(t, "root", name)
}

func TestMakeAdmin(t *testing.T) {
	t.Parallel()
	db := memory(t)
	nodes := []*node{open(t, db), open(t, db)}
	passwords := make([]string, len(nodes))
	var making sync.WaitGroup
	for i, n := range nodes {
		assert.False(t, n.HasAdmin())
		making.Go(func() {
			var err error
			passwords[i], err = n.MakeAdmin(t.Context())
			assert.NoError(t, err)
		})
	}
	making.Wait()
	password := passwords[0] + passwords[1]
	assert.Len(t, password, 26, "one of them")
	nodes = append(nodes, open(t, db))
	for _, n := range nodes {
		assert.True(t, n.HasAdmin())
		n.is([]string{"admin", "_admin"}, "admin", password)
		again, err := n.MakeAdmin(t.Context())
		require.NoError(t, err)
		assert.Empty(t, again)
	}
	given, err := open(t, memory(t), "admins/root=s3same").MakeAdmin(t.Context())
	require.NoError(t, err)
	assert.Empty(t, given)
}

func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		rev := n.user("ann", "pass", "staff")
		cookie := n.cookie("ann")
		name, renewed := n.session(cookie)
		assert.Equal(t, "ann", name)
		assert.Empty(t, renewed)
		time.Sleep(61 * time.Second)
		name, renewed = n.session(cookie)
		assert.Equal(t, "ann", name)
		require.NotEmpty(t, renewed, "a tenth of the time has passed")
		time.Sleep(9 * minute)
		name, _ = n.session(cookie)
		assert.Empty(t, name, "it has expired")
		name, _ = n.session(renewed)
		assert.Equal(t, "ann", name)
		n.write(rev, "ann", map[string]any{"password": "word"})
		name, _ = n.session(renewed)
		assert.Empty(t, name, "the password has changed")

		_, err := n.SignSession(t.Context(), "nobody")
		require.ErrorIs(t, err, accounts.ErrWrong)
		_, _, err = n.Session(t.Context(), "nonsense")
		require.ErrorIs(t, err, auth.ErrCookie)

		other := open(t, memory(t), "admins/root=s3same")
		name, _ = other.session(n.cookie("root"))
		assert.Empty(t, name, "another store has another secret")
	})
}

// salted is an administrator with a known salt.
const salted = "admins/root=-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt"

func TestCookieSecret(t *testing.T) {
	t.Parallel()
	one := open(t, memory(t), salted, "chttpd_auth/secret=shared")
	two := open(t, memory(t), salted, "chttpd_auth/secret=shared", "chttpd_auth/hash_algorithms=sha512,sha256")
	name, _ := two.session(one.cookie("root"))
	assert.Equal(t, "root", name)
	name, _ = one.session(two.cookie("root"))
	assert.Empty(t, name, "SHA-512 is not one of its algorithms")
}

// As in CouchDB's newer releases, a session outlives a change of the secret.
func TestCookieSecretChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), salted)
		set := func(secret string) {
			_, err := n.live.Set(t.Context(), "chttpd_auth", "secret", secret)
			require.NoError(t, err)
		}
		before := n.cookie("root")
		set("one")
		name, renewed := n.session(before)
		assert.Equal(t, "root", name)
		require.NotEmpty(t, renewed, "it is signed with the new secret")
		set("two")
		for _, cookie := range []string{before, renewed} {
			name, _ = n.session(cookie)
			assert.Equal(t, "root", name)
		}
		time.Sleep(5 * time.Second)
		set("one")
		later := n.cookie("root")
		set("two")
		time.Sleep(time.Second)
		name, _ = n.session(later)
		assert.Equal(t, "root", name)
		time.Sleep(time.Second)
		name, _ = n.session(auth.SignCookie("root", time.Now(), "two", "salt", "sha256"))
		assert.Equal(t, "root", name)
		name, _ = n.session(auth.SignCookie("root", time.Now(), "one", "salt", "sha256"))
		assert.Empty(t, name, "the secret was replaced before the cookie was signed")
		time.Sleep(10 * minute)
		name, _ = n.session(later)
		assert.Empty(t, name, "it has expired")
	})
}

// As in CouchDB, a name is locked for an address, whatever password follows.
func TestLockout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		rev := n.user("ann", "pass")
		for _, name := range []string{"root", "ann", "nobody"} {
			for range 5 {
				n.fails(accounts.ErrWrong, name, "guess")
			}
			n.fails(accounts.ErrLocked, name, "guess")
		}
		n.fails(accounts.ErrLocked, "root", "s3same")
		elsewhere, err := n.loginFrom("192.0.2.2:1", "root", "s3same")
		require.NoError(t, err)
		assert.Equal(t, []string{"root", "_admin"}, elsewhere)
		name, _ := n.session(n.cookie("root"))
		assert.Equal(t, "root", name, "sessions go on")
		n.write(rev, "ann", map[string]any{"password": "word"})
		n.is([]string{"ann"}, "ann", "word") // a new password has a new count
		time.Sleep(5 * minute)
		n.is([]string{"root", "_admin"}, "root", "s3same")
		assert.Contains(t, n.log.String(), `"from":"192.0.2.1"`)
		assert.NotContains(t, n.log.String(), "guess")
	})
}

func TestLockoutModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []string{"off", "warn"} {
			n := open(t, memory(t), "admins/root=s3same", "chttpd_auth_lockout/mode="+mode)
			began := time.Now()
			for range 20 {
				n.fails(accounts.ErrWrong, "root", "guess")
			}
			n.is([]string{"root", "_admin"}, "root", "s3same")
			assert.Zero(t, time.Since(began))
		}
		n := open(t, memory(t), "admins/root=s3same", "chttpd_auth_lockout/threshold=1", "chttpd_auth_lockout/max_lifetime=2000")
		n.fails(accounts.ErrWrong, "root", "guess")
		n.fails(accounts.ErrLocked, "root", "s3same")
		time.Sleep(2 * time.Second)
		n.is([]string{"root", "_admin"}, "root", "s3same")
	})
}

// An address that tries many names is delayed longer each time, and so is a name that is tried
// from many addresses.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		n.is([]string{"root", "_admin"}, "root", "s3same")
		took := func(address, name string) time.Duration {
			began := time.Now()
			_, err := n.loginFrom(address, name, "guess")
			require.ErrorIs(t, err, accounts.ErrWrong)
			return time.Since(began)
		}
		for i := range 5 {
			assert.Zero(t, took(here, "name"+strconv.Itoa(i)))
		}
		for i, want := range []int{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
			assert.EqualValues(t, want, took(here, "more"+strconv.Itoa(i)).Milliseconds())
		}
		began := time.Now()
		n.is([]string{"root", "_admin"}, "root", "s3same")
		assert.Zero(t, time.Since(began), "a remembered login does not wait")
		assert.Zero(t, took("192.0.2.2:1", "other"), "nor does another address")

		for i := range 5 {
			assert.Zero(t, took("198.51.100."+strconv.Itoa(i)+":1", "root"))
		}
		for i, want := range []int{100, 200, 400, 800, 1000, 1000} {
			assert.EqualValues(t, want, took("203.0.113."+strconv.Itoa(i)+":1", "root").Milliseconds())
		}

		// A bounded number of logins from one address wait.
		var waiting sync.WaitGroup
		errs := make(chan error, 20)
		for i := range cap(errs) {
			waiting.Go(func() {
				_, err := n.loginFrom(here, "many"+strconv.Itoa(i), "guess")
				errs <- err
			})
		}
		waiting.Wait()
		tooMany := 0
		for range cap(errs) {
			if err := <-errs; err != nil {
				if errors.Is(err, accounts.ErrTooMany) {
					tooMany++
				} else {
					require.ErrorIs(t, err, accounts.ErrWrong)
				}
			}
		}
		assert.Equal(t, 12, tooMany)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.Login(ctx, "last", "guess", here)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// An IPv6 network counts as one address.
func TestNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		for i := range 5 {
			_, err := n.loginFrom("[2001:db8::"+strconv.Itoa(i+1)+"]:1", "root", "guess")
			require.ErrorIs(t, err, accounts.ErrWrong)
		}
		_, err := n.loginFrom("[2001:db8::abcd]:1", "root", "s3same")
		require.ErrorIs(t, err, accounts.ErrLocked)
		_, err = n.loginFrom("[2001:db8:0:1::1]:1", "root", "s3same")
		require.NoError(t, err)
		for range 5 {
			_, err = n.loginFrom("[::ffff:192.0.2.7]:1", "nobody", "guess")
			require.ErrorIs(t, err, accounts.ErrWrong)
		}
		_, err = n.loginFrom("192.0.2.7:99", "nobody", "guess")
		require.ErrorIs(t, err, accounts.ErrLocked)
	})
}

// Concurrent guesses are not more guesses.
func TestParallelGuesses(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t), "admins/root=s3same", "chttpd_auth/iterations=1000")
	var guessing sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[error]int{}
	for range 60 {
		guessing.Go(func() {
			_, err := n.login("root", "guess")
			mu.Lock()
			defer mu.Unlock()
			outcomes[err]++
		})
	}
	guessing.Wait()
	assert.LessOrEqual(t, outcomes[accounts.ErrWrong], 5+64)
	assert.Zero(t, outcomes[nil])
	n.fails(accounts.ErrLocked, "root", "s3same")
}

// A user with a second factor needs it to log in, with the same API as in CouchDB.
func TestSecondFactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t))
		n.write(docstore.Rev{}, "ann", map[string]any{"password": "pass", "totp": map[string]any{"key": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}})
		n.write(docstore.Rev{}, "bob", map[string]any{"password": "pass", "totp": nil})
		n.user("eve", "pass")
		twice := func(name, password, oneTime string) error {
			_, err := n.LoginTwice(t.Context(), name, password, oneTime, here)
			return err
		}
		const before = "287082"
		time.Sleep(time.Until(time.Unix(1_000_000_019, 0)))
		const now = "864010"
		require.NoError(t, twice("ann", "pass", now))
		n.fails(accounts.ErrWrong, "ann", "pass")
		require.ErrorIs(t, twice("ann", "pass", ""), accounts.ErrWrong)
		require.ErrorIs(t, twice("ann", "pass", before), accounts.ErrWrong)
		require.ErrorIs(t, twice("ann", "guess", now), accounts.ErrWrong)
		require.ErrorIs(t, twice("ann", "pass", "000000"), accounts.ErrWrong)
		require.ErrorIs(t, twice("ann", "pass", now), accounts.ErrLocked, "one-time passwords are not guessed either")
		name, _ := n.session(n.cookie("ann"))
		assert.Equal(t, "ann", name)

		n.fails(accounts.ErrWrong, "bob", "pass")
		require.ErrorIs(t, twice("bob", "pass", ""), accounts.ErrWrong)
		require.NoError(t, twice("eve", "pass", ""))
		n.is([]string{"eve"}, "eve", "pass")
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	// {"alg":"HS256","typ":"JWT"} {"sub":"ann","exp":4102444800,"_couchdb.roles":["staff"]},
	// signed with a secret of three bytes
	const token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsIl9jb3VjaGRiLnJvbGVzIjpbInN0YWZmIl19.4euW1e_OsgKo7IahVEd4Ik57QF1NrT0o1mlsv08Y1gQ"
	n := open(t, memory(t), "jwt_keys/hmac:_default=a2V5")
	user, err := n.Token(token)
	require.NoError(t, err)
	assert.Equal(t, auth.User{Name: "ann", Roles: []string{"staff"}}, user)
	_, err = open(t, memory(t), "jwt_keys/hmac:_default=a2V6").Token(token)
	require.EqualError(t, err, "Bad signature in authentication token")
	_, err = open(t, memory(t)).Token(token)
	require.EqualError(t, err, "Unknown kid")
	_, err = open(t, memory(t), "jwt_keys/hmac:_default=a2V5", `jwt_auth/required_claims=exp, {iss, "us"}`).Token(token)
	require.EqualError(t, err, "Missing iss claim")
	user, err = open(t, memory(t), "jwt_keys/hmac:_default=a2V5", "jwt_auth/roles_claim_name=sub").Token(token)
	require.NoError(t, err)
	assert.Equal(t, []string{"ann"}, user.Roles)
}

// A write takes effect once, whether the result of its commit is known or not.
func TestUnknownCommits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		db := faultkv.Wrap(memory(t), faultkv.Options{Seed: seed, Rates: faultkv.Rates{
			faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.3, faultkv.UnknownNotCommitted: 0.1,
		}})
		one, two := open(t, db, "admins/root=s3same"), open(t, db, "admins/root=s3same")
		one.is([]string{"root", "_admin"}, "root", "s3same")
		name, _ := two.session(one.cookie("root"))
		assert.Equal(t, "root", name)
		fresh := open(t, faultkv.Wrap(memory(t), faultkv.Options{Seed: seed, Rates: faultkv.Rates{faultkv.UnknownCommitted: 0.5}}))
		password, err := fresh.MakeAdmin(t.Context())
		require.NoError(t, err)
		fresh.is([]string{"admin", "_admin"}, "admin", password)
	}
}

// No login waits forever for others' hashes, and no address can make all addresses wait.
func TestManyWaitingLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		giveBack := n.Occupy()
		var attempts sync.WaitGroup
		try := func(address, name, password string) <-chan error {
			ended := make(chan error, 1)
			attempts.Go(func() {
				_, err := n.loginFrom(address, name, password)
				ended <- err
			})
			synctest.Wait()
			return ended
		}
		began := time.Now()
		var waiting []<-chan error
		for i := range 50 {
			waiting = append(waiting, try(here, "name"+strconv.Itoa(i), "guess"))
		}
		require.ErrorIs(t, <-try(here, "another", "guess"), accounts.ErrTooMany)
		for i := range 50 {
			waiting = append(waiting, try("198.51.100."+strconv.Itoa(i)+":1", "root", "s3same"))
		}
		require.ErrorIs(t, <-try("192.0.2.2:1", "another", "guess"), accounts.ErrBusy)
		assert.Zero(t, time.Since(began))
		for _, ended := range waiting {
			require.ErrorIs(t, <-ended, accounts.ErrBusy)
		}
		assert.Equal(t, 10*time.Second, time.Since(began))

		// They do not count as failures.
		giveBack()
		attempts.Wait()
		n.is([]string{"root", "_admin"}, "root", "s3same")
	})
}

// The password of a client that starts with many requests is hashed at most once for each
// processor, and not again before a pause.
func TestManyConcurrentLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, memory(t), "admins/root=s3same")
		hashed := n.CountHashed()
		giveBack := n.Occupy()
		var requests sync.WaitGroup
		for range 40 {
			requests.Go(func() {
				_, err := n.login("root", "s3same")
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		giveBack()
		requests.Wait()
		assert.LessOrEqual(t, hashed.Load(), int64(runtime.GOMAXPROCS(0)))

		first := hashed.Load()
		for range 10 {
			time.Sleep(minute - 1)
			n.is([]string{"root", "_admin"}, "root", "s3same")
		}
		assert.Equal(t, first, hashed.Load())
		time.Sleep(minute)
		n.is([]string{"root", "_admin"}, "root", "s3same")
		assert.Equal(t, first+1, hashed.Load())
	})
}

// A wrong password takes as long for an account with an old hash as for an unknown name.
func TestOldHashesTakeAsLong(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t), "chttpd_auth/iterations=500", "chttpd_auth_lockout/mode=off",
		"admins/simple=-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt",
		"admins/ten=-pbkdf2-"+strings.Repeat("0", 40)+",salt,10")
	for _, name := range []string{"simple", "ten", "nobody"} {
		iterations := n.CountIterations()
		n.fails(accounts.ErrWrong, name, "wrong")
		require.EqualValues(t, 500, iterations.Load(), name)
	}
}

// New hashes have no more iterations than a login accepts.
func TestNewHashesRespectMaxIterations(t *testing.T) {
	t.Parallel()
	n := open(t, memory(t), "chttpd_auth/iterations=200", "chttpd_auth/max_iterations=100", "admins/root=s3same")
	n.user("ann", "pass")
	n.is([]string{"ann"}, "ann", "pass")
	n.is([]string{"root", "_admin"}, "root", "s3same")
}

// A hash with more than [chttpd_auth] max_iterations is never computed.
func TestHostileIterations(t *testing.T) {
	t.Parallel()
	slow := auth.NewHash("x", "sha256", 5)
	slow.Iterations = 1 << 31
	n := open(t, memory(t), "chttpd_auth/max_iterations=1000", noLockout, "admins/root="+slow.String())
	for _, scheme := range []auth.Scheme{auth.PBKDF2, auth.SimplePBKDF2} {
		n.write(docstore.Rev{}, string(scheme), map[string]any{
			"password_scheme": scheme, "pbkdf2_prf": "sha256", "derived_key": slow.Key, "salt": slow.Salt, "iterations": slow.Iterations,
		})
	}
	for _, name := range []string{"root", string(auth.PBKDF2), string(auth.SimplePBKDF2)} {
		iterations := n.CountIterations()
		n.fails(accounts.ErrWrong, name, "x")
		assert.LessOrEqual(t, iterations.Load(), int64(1000), name)
	}
	assert.Contains(t, n.log.String(), "has too many iterations")
}
