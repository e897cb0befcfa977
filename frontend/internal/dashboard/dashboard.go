// Package dashboard serves the pages of /_utils/, with which operators and users see and change replications.
//
// The pages are one program, written in TypeScript (src), which runs in the browser and uses the public HTTP interface
// alone. make dashboard builds it from src and the locked npm packages into built. The files of built are part of the
// repository and of the binary, so that building settee needs Go only.
//
// # What a page may do
//
// The files have no data, so everybody may read them. What a page shows it asks for with the session of its user. The
// Content-Security-Policy forbids a page to load or to call anything from another origin, to run scripts or styles
// that are not among the files, and to be shown in a frame. A page keeps nothing in the browser's storage. The session is a
// cookie that no script can read.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"settee/frontend/internal/web"
)

//go:embed built
var built embed.FS

// policy is the Content-Security-Policy of the pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the media types of the files by extension.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is a file as it is sent.
type file struct {
	text, compressed []byte
	mediaType, sum   string
}

// files returns the files by name.
var files = sync.OnceValues(func() (map[string]*file, error) {
	found := make(map[string]*file)
	err := fs.WalkDir(built, "built", func(name string, entry fs.DirEntry, err error) error {
		mediaType, known := types[path.Ext(name)]
		if err != nil || entry.IsDir() || !known {
			return err
		}
		text, err := built.ReadFile(name)
		if err != nil {
			return err
		}
		var compressed bytes.Buffer
		to := gzip.NewWriter(&compressed)
		if _, err := to.Write(text); err != nil {
			return err
		}
		if err := to.Close(); err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		found[entry.Name()] = &file{text, compressed.Bytes(), mediaType, hex.EncodeToString(sum[:16])}
		return nil
	})
	return found, err
})

// Index answers /_utils/. The names in the page are relative, so /_utils is redirected.
func Index(w http.ResponseWriter, r *http.Request) error {
	if asked, _, _ := strings.Cut(r.RequestURI, "?"); !strings.HasSuffix(asked, "/") { // r.URL never has a slash at its end
		w.Header().Set("Location", path.Base(asked)+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		return nil
	}
	return send(w, r, "index.html")
}

// File answers /_utils/{file}.
func File(w http.ResponseWriter, r *http.Request) error {
	return send(w, r, web.PathValue(r, "file"))
}

func send(w http.ResponseWriter, r *http.Request, name string) error {
	all, err := files()
	if err != nil {
		return err
	}
	found := all[name]
	if found == nil {
		return web.NotFound("missing")
	}
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache") // the tag names this version's file
	header.Set("Content-Type", found.mediaType)
	header.Set("Vary", "Accept-Encoding")
	text, tag := found.text, `"`+found.sum+`"`
	if web.AcceptsEncoding(r, "gzip") {
		header.Set("Content-Encoding", "gzip")
		text, tag = found.compressed, `"`+found.sum+`-gzip"`
	}
	if web.NotModified(w, r, tag) {
		return nil
	}
	web.SetLength(w, int64(len(text)))
	web.ExtendDeadline(w)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // a client that has gone needs no file
	}
	return nil
}
