package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// A cost is the time that something took, and the processor time of all processes for it.
type cost struct{ wall, processor time.Duration }

func (c cost) perSecond(n int) float64 { return float64(n) / c.wall.Seconds() }

// measure returns the cost of f.
func measure(f func() error) (cost, error) {
	before, err := processorTime()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return cost{}, err
	}
	wall := time.Since(began)
	after, err := processorTime()
	return cost{wall, after - before}, err
}

// tick is the unit of the times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// processorTime returns the processor time of this process and of its descendants, with those that have ended.
func processorTime() (time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	ticks, children := map[int]int{}, map[int][]int{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		pid, parent, used, err := parseStat(stat)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		ticks[pid] = used
		children[parent] = append(children[parent], pid)
	}
	sum := 0
	family := []int{os.Getpid()}
	for len(family) > 0 {
		pid := family[0]
		sum += ticks[pid]
		family = append(family[1:], children[pid]...)
	}
	return time.Duration(sum) * tick, nil
}

// parseStat returns a process, its parent, and the ticks that it and the children that it has waited for have used: see
// proc(5).
func parseStat(stat []byte) (pid, parent, ticks int, err error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')') // around the name, which may hold anything
	if open < 0 || end < 0 {
		return 0, 0, 0, errors.New("there is no name")
	}
	fields := bytes.Fields(slices.Concat(stat[:open], stat[end+1:]))
	// pid, parent, utime, stime, cutime, cstime
	var numbers [6]int
	for i, field := range []int{0, 2, 12, 13, 14, 15} {
		if numbers[i], err = strconv.Atoi(string(fields[field])); err != nil {
			return 0, 0, 0, err
		}
	}
	return numbers[0], numbers[1], numbers[2] + numbers[3] + numbers[4] + numbers[5], nil
}

// measureSync returns the median of the times in which a few bytes are written to the end of a file and synced.
func measureSync(ctx context.Context) (time.Duration, error) {
	file, err := os.CreateTemp("", "bench-peers-")
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	var all []time.Duration
	for len(all) < 1000 && ctx.Err() == nil {
		began := time.Now()
		_, err := file.Write(make([]byte, 100))
		if err := errors.Join(err, file.Sync()); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2], context.Cause(ctx)
}
