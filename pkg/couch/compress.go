package couch

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// compressOver is the size in bytes from which on a request's body is compressed: less is one or two
// packets in any case.
const compressOver = 4 << 10

// compressors are gzip writers that are not in use. One has about a megabyte of tables.
var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
	return w
}}

// post posts JSON, compressed where that pays. A server that does not take it so is asked once more,
// without, and if that was the reason never again with.
func (d *Database) post(ctx context.Context, path string, body requestBody, read func(*response) error) error {
	plain := func() *request {
		return &request{method: http.MethodPost, path: path, content: jsonType, body: body}
	}
	if !d.compresses() {
		return d.call(ctx, plain(), read)
	}
	compressed, ok := compress(body)
	if !ok {
		return d.call(ctx, plain(), read)
	}
	r := plain()
	r.body, r.gzipped = bytesBody(compressed), true
	err := d.call(ctx, r, read)
	if e, ok := errors.AsType[*Error](err); !ok ||
		e.Status != http.StatusUnsupportedMediaType && e.Status != http.StatusBadRequest {
		return err
	}
	if err = d.call(ctx, plain(), read); err == nil {
		d.wantsPlain.Store(true)
	}
	return err
}

// compresses reports whether requests are worth compressing: for a server that is known to take them so,
// over a network that is likely to be slower than the compressor. That manages about 90 MB/s per core at
// its fastest level and leaves a quarter of JSON such as documents are, so it pays up to some 500 Mbit/s.
// The networks of this machine and of its site are faster, and there it would cost a core for nothing:
// what has a loopback or a private address is not compressed for.
func (d *Database) compresses() bool {
	return !d.cfg.NoCompression && d.gunzips.Load() && !d.near.Load() && !d.wantsPlain.Load()
}

// compress compresses a body, if it is large and becomes smaller by that.
func compress(body requestBody) ([]byte, bool) {
	plain, length := body.open()
	if length < compressOver {
		return nil, false
	}
	w, ok := compressors.Get().(*gzip.Writer)
	if !ok {
		return nil, false
	}
	defer compressors.Put(w)
	var out bytes.Buffer
	out.Grow(int(length / 4))
	w.Reset(&out)
	_, _ = io.Copy(w, plain) // both are in memory: a buffer takes all
	_ = w.Close()
	return out.Bytes(), int64(out.Len()) < length
}

// learnEncodings notes whether a server takes compressed requests: all of CouchDB's that have JSON in
// them do, and settee's.
func (d *Database) learnEncodings(header http.Header) {
	server := header.Get("Server")
	if strings.HasPrefix(server, "CouchDB/") || server == "settee" {
		d.gunzips.Store(true)
	}
}

// learnAddress notes whether the other end of a connection, which may be a proxy's, is near.
func (d *Database) learnAddress(conn net.Conn) {
	if conn == nil {
		return
	}
	to, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return // a pipe of a test
	}
	addr := to.Addr().Unmap()
	d.near.Store(addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast())
}
