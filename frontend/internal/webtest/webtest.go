package webtest

import (
	"encoding/base64"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// UnderRace returns the size or the number of something large. It is smaller under the race detector, which shows
// nothing more with a larger one.
func UnderRace(size, smaller int) int {
	if testkit.Race {
		return smaller
	}
	return size
}

// Secret is a part of every credential in these tests, and of nothing else: no answer and no
// line of the log may contain it.
const Secret = "s3same"

const (
	// AdminName is the name of the administrator, whose account a node's client uses.
	AdminName = "admin"
	// AdminPassword is the administrator's password.
	AdminPassword = "adm-" + Secret
)

// AsAdmin makes requests as the administrator, unless they have other credentials.
type AsAdmin struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a AsAdmin) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Header.Get("Authorization") {
	case "":
		r.SetBasicAuth(AdminName, AdminPassword)
	case Nobody:
		r.Header.Del("Authorization")
	}
	return a.RoundTripper.RoundTrip(r)
}

// Nobody is the value of Authorization with which AsAdmin sends no credentials.
const Nobody = "nobody"

// RawHead has the headers of a request that is written by hand: the host, and the credentials of the
// administrator.
var RawHead = "Host: a\r\nAuthorization: Basic " +
	base64.StdEncoding.EncodeToString([]byte(AdminName+":"+AdminPassword)) + "\r\n"

// Settings are settings of all nodes here: there is an administrator, a password is hashed quickly, and no function is
// too slow, on a busy machine either.
var Settings = []string{
	"chttpd_auth/iterations=1", "admins/" + AdminName + "=" + AdminPassword, "couchdb/os_process_timeout=600000",
}

// Memory returns an empty engine in memory.
func Memory(t *testing.T) kv.Database {
	t.Helper()
	db, err := memkv.Open(memkv.Options{})
	require.NoError(t, err)
	return db
}

// ListenTCP listens on a free port.
func ListenTCP(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// ListenPipe returns a network in memory, which a synctest bubble can use.
func ListenPipe() *couchtest.PipeListener { return couchtest.ListenPipe() }
