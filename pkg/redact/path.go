package redact

import (
	"net/url"
	"regexp"
)

// collapsed matches the scheme of a URL within a path. Servers and proxies collapse the slashes of a path, so one may be
// left.
var collapsed = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*):/+`)

// maxEscapes is how often a path may have been percent-encoded.
const maxEscapes = 4

// Path returns the path of a URL with the passwords in the URLs within it masked, as [Text] does, even if their slashes were
// collapsed (/http:/adm:secret@host) or they are percent-encoded, once or repeatedly. A path that has none does not change;
// one that has is returned without its percent-encoding.
func Path(path string) string {
	plain := path
	for range maxEscapes {
		next, err := url.PathUnescape(plain)
		if err != nil || next == plain {
			break
		}
		plain = next
	}
	whole := collapsed.ReplaceAllString(plain, "$1://")
	if masked := Text(whole); masked != whole {
		return masked
	}
	return Text(path)
}
