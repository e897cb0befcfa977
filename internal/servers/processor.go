package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// tick is the unit of the times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// ProcessorTime returns the processor time of a process and of its descendants, with those that have ended. It needs
// Linux, which counts it in /proc.
func ProcessorTime(pid int) (time.Duration, error) {
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
	if _, ok := ticks[pid]; !ok {
		return 0, fmt.Errorf("processor time: no process %d in /proc", pid)
	}
	sum := 0
	family := []int{pid}
	for len(family) > 0 {
		sum += ticks[family[0]]
		family = append(family[1:], children[family[0]]...)
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
