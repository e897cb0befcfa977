package couchtest

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
)

func (h *Hostile) bulkDocs(w http.ResponseWriter, body []byte) {
	var docs struct{ Docs []json.RawMessage }
	if err := json.Unmarshal(body, &docs); err != nil {
		refused(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	for _, doc := range docs.Docs {
		if err := h.store(doc, nil); err != nil {
			refused(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `[]`)
}

// store keeps a written document. text is its squeezed text.
func (h *Hostile) store(text []byte, files []file) error {
	var doc struct {
		ID     string `json:"_id"`
		Rev    string `json:"_rev"`
		Filler string
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	size := len(doc.Filler)
	if n, err := strconv.Atoi(doc.Filler); err == nil {
		size = n
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(doc.ID, &prepared{rev: doc.Rev, size: size, files: files})
	return nil
}

// put stores a document with the attachments that follow it, after reading the whole request.
func (h *Hostile) put(w http.ResponseWriter, r *http.Request) {
	media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var text []byte
	var files []file
	var err error
	if media == "multipart/related" {
		text, files, err = readRelated(multipart.NewReader(r.Body, params["boundary"]))
	} else {
		text, err = squeeze(r.Body)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	if err == nil && !h.Unnamed && !h.matches(text, files) {
		refused(w, http.StatusInternalServerError, "unknown_error", "function_clause")
		return
	}
	if err == nil {
		err = h.store(text, files)
	}
	if err != nil {
		refused(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"ok":true,"id":"x","rev":"1-x"}`)
}

// matches reports whether the attachments match the digests in a document, and counts the document if they do not.
func (h *Hostile) matches(text []byte, files []file) bool {
	var doc struct {
		Attachments map[string]struct{ Digest string } `json:"_attachments"`
	}
	if json.Unmarshal(text, &doc) != nil {
		return true // store says what is wrong
	}
	for _, f := range files {
		if doc.Attachments[f.name].Digest != f.digest {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.damaged++
			return false
		}
	}
	return true
}

func readRelated(parts *multipart.Reader) (text []byte, files []file, err error) {
	part, err := parts.NextRawPart()
	if err != nil {
		return nil, nil, err
	}
	if text, err = squeeze(part); err != nil {
		return nil, nil, err
	}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return text, files, nil
		}
		if err != nil {
			return nil, nil, err
		}
		hash := md5.New()
		size, err := io.Copy(hash, part)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file{name: part.FileName(), size: size, digest: digestText(hash.Sum(nil))})
	}
}
