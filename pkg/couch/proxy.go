package couch

import (
	"cmp"
	"errors"
	"net"
	"net/url"
)

// parseProxy parses the URL of a proxy. It is nil if there is none. The error does not quote it.
func parseProxy(text string) (*url.URL, error) {
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

// proxyName is a proxy's URL without its credentials.
func proxyName(u *url.URL) string { return u.Scheme + "://" + u.Host }

// hostPort is the host and port of an endpoint.
func hostPort(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), defaultPorts[u.Scheme]))
}

// defaultPorts are the ports of URLs that have none.
var defaultPorts = map[string]string{"http": "80", "https": "443"}
