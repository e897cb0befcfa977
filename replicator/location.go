package replicator

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// location is a URL split into the parts that endpoints, proxies and ids need. net/url is not
// used because it refuses user names and passwords that users of CouchDB write into URLs, and
// because ids need every part as spelled.
type location struct {
	scheme   string // lower case
	userinfo string // as written, "" if there is none
	host     string // without the brackets of an IPv6 address
	port     int    // 0 if there is none
	path     string // with the query, as written; "" or begins with / or ?
}

// splitURL splits text into its parts. Its errors never quote text, which may contain a password.
func splitURL(text string) (location, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme == "" {
		return location{}, errors.New("it has no scheme")
	}
	l := location{scheme: strings.ToLower(scheme)}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, l.path = rest[:end], rest[end:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		l.userinfo, authority = authority[:at], authority[at+1:]
	}
	if err := l.setAuthority(authority); err != nil {
		return location{}, err
	}
	if !validPath(l.path) {
		return location{}, errors.New("its path has characters that must be percent-encoded")
	}
	return l, nil
}

func (l *location) setAuthority(authority string) error {
	host, port := authority, ""
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return errors.New("its host is not valid")
		}
		host, port = authority[1:end], authority[end+1:]
		if address, err := netip.ParseAddr(host); err != nil || !address.Is6() || address.Zone() != "" {
			return errors.New("its host is not valid")
		}
		if port != "" && port[0] != ':' {
			return errors.New("its host is not valid")
		}
	} else {
		if colon := strings.IndexByte(authority, ':'); colon >= 0 {
			host, port = authority[:colon], authority[colon:]
		}
		if !validHost(host) {
			return errors.New("its host is not valid")
		}
	}
	l.host = host
	if len(port) > 1 {
		number, err := strconv.ParseUint(port[1:], 10, 16)
		if err != nil || number == 0 {
			return errors.New("its port is not valid")
		}
		l.port = int(number)
	}
	return nil
}

// String returns the URL without its user name and password.
func (l location) String() string {
	return l.scheme + "://" + l.hostPort() + l.path
}

func (l location) hostPort() string {
	host := l.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if l.port != 0 {
		host += ":" + strconv.Itoa(l.port)
	}
	return host
}

// credentials returns the user name and password of the URL. A user name without a password does
// not count, as in CouchDB. Escapes are decoded; a part with an invalid escape is returned as
// written.
func (l location) credentials() (credentials, bool) {
	user, password, found := strings.Cut(l.userinfo, ":")
	if !found {
		return credentials{}, false
	}
	return credentials{
		username: unescape(user), password: unescape(password), written: user, doubtful: hasNeedlessEscape(l.userinfo),
	}, true
}

func unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// validHost reports whether host may be a name or an IPv4 address. Internationalized names have
// to be in their ASCII form.
func validHost(host string) bool {
	if host == "" {
		return false
	}
	for _, c := range []byte(host) {
		if !isAlphanumeric(c) && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// validPath reports whether path has only the characters that RFC 3986 allows in a path and a
// query.
func validPath(path string) bool {
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return false
			}
			i += 2
			continue
		}
		if !isAlphanumeric(c) && strings.IndexByte("/?:@-._~!$&'()*+,;=", c) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
