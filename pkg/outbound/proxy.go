package outbound

import (
	"cmp"
	"errors"
	"net"
	"net/url"
)

// ParseProxy parses the URL of an http, https or socks5 proxy. It returns nil for an empty text. The error does not
// quote the text, which may have a password.
func ParseProxy(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("proxy: not a URL")
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return u, nil
	}
	return nil, errors.New("proxy: none of http, https and socks5")
}

// proxyName returns a proxy's URL without its credentials.
func proxyName(u *url.URL) string { return u.Scheme + "://" + u.Host }

// HostPort returns the host and port of an http or https URL, with the default port if it has none.
func HostPort(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPorts[u.Scheme]))
}

// defaultPorts are the ports of URLs that have none.
var defaultPorts = map[string]string{"http": "80", "https": "443"}
