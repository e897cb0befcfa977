package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Confine makes a command use some processors alone, as taskset takes them; all if the list is empty.
func Confine(command *exec.Cmd, cpus string) {
	if cpus == "" {
		return
	}
	command.Args = append([]string{"taskset", "-c", cpus, command.Path}, command.Args[1:]...)
	command.Path, command.Err = exec.LookPath("taskset")
}

// Pause waits for a time.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Percentile returns a percentile of sorted values, or 0 if there are none.
func Percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// readMetrics reads metrics without labels from Prometheus's text format.
func readMetrics(r io.Reader) (map[string]float64, error) {
	all := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil && name != "#" {
			all[name] = number
		}
	}
	return all, lines.Err()
}

// MachineTime returns the processor time that all processes of the machine have used.
func MachineTime() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line) // cpu, user, nice, system, idle, iowait, irq, softirq, steal ...: see proc(5)
	if len(fields) < 8 {
		return 0, errors.New("/proc/stat: the first line is too short")
	}
	const tick = 10 * time.Millisecond
	var used time.Duration
	for _, n := range []int{1, 2, 3, 6, 7} {
		ticks, err := strconv.ParseInt(string(fields[n]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		used += time.Duration(ticks) * tick
	}
	return used, nil
}
