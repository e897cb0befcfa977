package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// chromiumPrograms are the names of the program in the packages of systems.
var chromiumPrograms = []string{"chromium", "chromium-browser", "google-chrome"}

// Chromium is a browser without a screen, which is controlled through a port.
type Chromium struct {
	// DevTools is the URL of its DevTools protocol.
	DevTools string

	process *Process
}

// FindChromium returns the path of the program. The error wraps ErrNotInstalled.
func FindChromium() (string, error) {
	for _, name := range chromiumPrograms {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("Chromium: none of %s is in PATH: %w", strings.Join(chromiumPrograms, ", "), ErrNotInstalled)
}

// StartChromium starts a browser whose profile and log are in an existing directory, and returns when it is ready. The
// directory is removed if this process ends before the browser.
func StartChromium(ctx context.Context, dir string) (*Chromium, error) {
	program, err := FindChromium()
	if err != nil {
		return nil, err
	}
	profile, log := filepath.Join(dir, "profile"), filepath.Join(dir, "chromium.log")
	args := []string{
		"--headless", "--window-size=1600,1200", "--remote-debugging-port=0", "--user-data-dir=" + profile,
		// Nothing but what the tests ask for.
		"--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-sync", "--disable-breakpad",
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--metrics-recording-only",
		"--no-proxy-server", "--password-store=basic", "--disable-gpu", "--disable-dev-shm-usage",
		// Tabs that are not in front run as fast.
		"--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
	}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // the sandbox does not work for root
	}
	command := exec.Command(program, append(args, "about:blank")...)
	command.Dir, command.Env = dir, append(os.Environ(), "HOME="+dir)
	process, err := Run(command, log, dir)
	if err != nil {
		return nil, fmt.Errorf("starting Chromium: %w", err)
	}
	c := &Chromium{process: process}
	err = process.Await(ctx, func(context.Context) (bool, error) {
		text, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort")) // the port, and the path
		port, path, whole := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if errors.Is(err, fs.ErrNotExist) || err == nil && !whole {
			return false, nil
		}
		c.DevTools = "ws://127.0.0.1:" + port + path
		return err == nil, err
	})
	if err != nil {
		process.Kill()
		return nil, fmt.Errorf("starting Chromium: %w; the end of its log: %s", err, LastLines(log))
	}
	return c, nil
}

// Kill ends the browser.
func (c *Chromium) Kill() { c.process.Kill() }
