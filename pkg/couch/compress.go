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
	"sync"
)

// compressOver is the minimum size in bytes of a body that is compressed. A smaller one takes one or two packets
// anyway.
const compressOver = 4 << 10

// compressors holds idle gzip writers. Each has about a megabyte of tables.
var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
	return w
}}

// post posts JSON, compressed if that pays. If a server refuses the compressed request, post sends it uncompressed. If
// that succeeds, it never compresses again for this database.
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

// compresses reports whether to compress requests: if the server is known to accept that, as CouchDB and settee do for all
// requests with JSON, and the network is probably slower than the compressor. At its fastest level gzip compresses about
// 90 MB/s per core and leaves a quarter of typical documents, so it pays up to some 500 Mbit/s. Loopback and private
// networks are faster, so it does not compress for such addresses.
func (d *Database) compresses() bool {
	known := d.couchDB.Load() || d.settee.Load()
	return known && !d.cfg.NoCompression && !d.near.Load() && !d.wantsPlain.Load()
}

// compress compresses a large body if that makes it smaller.
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
	_, _ = io.Copy(w, plain) // in memory: never fails
	_ = w.Close()
	return out.Bytes(), int64(out.Len()) < length
}

// learnAddress records whether the other end of a connection, possibly a proxy, is near.
func (d *Database) learnAddress(conn net.Conn) {
	if conn == nil {
		return
	}
	to, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return // a pipe in a test
	}
	addr := to.Addr().Unmap()
	d.near.Store(addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast())
}
