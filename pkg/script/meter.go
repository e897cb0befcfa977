package script

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Numbers of the binary format of WebAssembly: sections, and the instructions that need a treatment of their own. Any
// other instruction has as many LEB128 numbers after it as immediates says.
const (
	sectionImport, sectionGlobal, sectionCode = 2, 6, 10

	opLoop, opEnd, opBranchTable, opSelect = 0x03, 0x0b, 0x0e, 0x1c
	opFloat32, opFloat64, opPrefix         = 0x43, 0x44, 0xfc

	opCopy, opFill = 0x10a, 0x10b // memory.copy and memory.fill: opPrefix, and a number
)

// passBytes is how many bytes, as a power of two, are copied or filled in about the time of a pass.
const passBytes = 7

var errModule = errors.New("the module is damaged")

// meter returns a module that calls an imported function from time to time. The function takes nothing and returns an
// int32: the number of passes through loops until the next call. Code that runs without end has loops, so the function
// can end it. The instructions that copy and fill memory count as many passes as take about their time; a call comes
// after them, at the next pass. The runtime's own check is a call from every pass, which makes the engine four to five
// times slower.
func meter(module []byte, importedFrom, function string) ([]byte, error) {
	r := &reader{rest: module}
	out := append([]byte(nil), r.bytes(8)...) // magic number and version
	var call, counter uint32                  // indexes of the function and of the first of two global variables
	for len(r.rest) > 0 && r.err == nil {
		section := r.byte()
		body := &reader{rest: r.bytes(r.number())}
		content := body.rest
		switch section {
		case sectionImport:
			call = body.imported(importedFrom, function)
		case sectionGlobal:
			// Two global variables are added at the end: mutable int32s that are 1.
			counter = body.number()
			content = append(binary.AppendUvarint(nil, uint64(counter)+2), body.rest...)
			content = append(content, 0x7f, 1, 0x41, 1, opEnd, 0x7f, 1, 0x41, 1, opEnd)
		case sectionCode:
			content = body.functions(insertions{pass(counter, call), bulk(counter)})
		}
		if body.err != nil {
			return nil, body.err
		}
		out = binary.AppendUvarint(append(out, section), uint64(len(content)))
		out = append(out, content...)
	}
	return out, r.err
}

// insertions is code to be added to functions.
type insertions struct {
	inLoops    []byte // at the beginning of each loop
	beforeBulk []byte // before each instruction that copies or fills memory
}

// instruction appends an instruction with one number.
func instruction(code []byte, op byte, operand uint32) []byte {
	return binary.AppendUvarint(append(code, op), uint64(operand))
}

// pass returns the code of a pass through a loop: counter--; if counter < 1 { counter += call() }
func pass(counter, call uint32) []byte {
	code := instruction(nil, 0x23, counter)               // global.get
	code = append(code, 0x41, 1, 0x6b)                    // i32.const 1, i32.sub
	code = instruction(code, 0x24, counter)               // global.set
	code = instruction(code, 0x23, counter)               // global.get
	code = append(code, 0x41, 1, 0x48, 0x04, 0x40)        // i32.const 1, i32.lt_s, if
	code = instruction(code, 0x10, call)                  // call
	code = instruction(code, 0x23, counter)               // global.get
	code = instruction(append(code, 0x6a), 0x24, counter) // i32.add, global.set
	return append(code, opEnd)
}

// bulk returns the code before an instruction with a length, which is on the stack: counter -= length >> passBytes. The
// global variable after the counter keeps the length meanwhile.
func bulk(counter uint32) []byte {
	code := instruction(nil, 0x24, counter+1)        // global.set
	code = instruction(code, 0x23, counter)          // global.get
	code = instruction(code, 0x23, counter+1)        // global.get
	code = append(code, 0x41, passBytes, 0x76, 0x6b) // i32.const, i32.shr_u, i32.sub
	code = instruction(code, 0x24, counter)          // global.set
	return instruction(code, 0x23, counter+1)        // global.get
}

// immediates returns the number of LEB128 numbers that follow an instruction. Those after opPrefix have 0x100 added.
func immediates(op uint32) int {
	switch {
	case op >= 0x02 && op <= 0x04, // block, loop, if
		op == 0x0c, op == 0x0d, op == 0x10, // branches, call
		op >= 0x20 && op <= 0x26, // variables and tables
		op >= 0x3f && op <= 0x42, // size of memory, integers
		op == 0xd0, op == 0xd2,   // references
		op == 0x109, op == 0x10b, op == 0x10d, op >= 0x10f && op <= 0x111: // data.drop, memory.fill, elem.drop, tables
		return 1
	case op == 0x11, op >= 0x28 && op <= 0x3e, // call_indirect, loads and stores
		op == 0x108, op == 0x10a, op == 0x10c, op == 0x10e: // memory.init and copy, table.init and copy
		return 2
	case op <= 0x01, op == 0x05, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b,
		op >= 0x45 && op <= 0xc4, op == 0xd1, op >= 0x100 && op <= 0x107:
		return 0
	}
	return -1
}

// reader reads a module. After an error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) bytes(n uint32) []byte {
	if r.err != nil || uint64(n) > uint64(len(r.rest)) {
		r.err, r.rest = errors.Join(r.err, errModule), nil
		return make([]byte, min(n, 8))
	}
	read := r.rest[:n]
	r.rest = r.rest[n:]
	return read
}

func (r *reader) byte() byte { return r.bytes(1)[0] }

// number reads an unsigned LEB128 number, or skips a signed one.
func (r *reader) number() uint32 {
	for n, shift := uint32(0), 0; ; shift += 7 {
		b := r.byte()
		n |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

// imported reads the imports, which are functions, and returns the index of one.
func (r *reader) imported(from, function string) uint32 {
	for i := range r.number() {
		module, name := string(r.bytes(r.number())), string(r.bytes(r.number()))
		if kind := r.byte(); kind != 0 {
			r.err = errors.Join(r.err, errModule)
		}
		r.number() // its type
		if module == from && name == function {
			return i
		}
	}
	r.err = fmt.Errorf("%w: it does not import %s", errModule, function)
	return 0
}

// functions reads the code of all functions, and returns it with the insertions.
func (r *reader) functions(added insertions) []byte {
	count := r.number()
	out := binary.AppendUvarint(nil, uint64(count))
	for range count {
		body := &reader{rest: r.bytes(r.number())}
		code := body.function(added)
		if body.err != nil {
			r.err = body.err
		}
		out = append(binary.AppendUvarint(out, uint64(len(code))), code...)
	}
	return out
}

func (r *reader) function(added insertions) []byte {
	all, copied := r.rest, 0
	var out []byte
	for range r.number() { // local variables
		r.number()
		r.byte()
	}
	insert := func(at int, code []byte) {
		out = append(append(out, all[copied:at]...), code...)
		copied = at
	}
	for len(r.rest) > 0 {
		begin := len(all) - len(r.rest)
		op := uint32(r.byte())
		switch op {
		case opBranchTable:
			for range r.number() + 1 {
				r.number()
			}
		case opSelect:
			r.bytes(r.number())
		case opFloat32:
			r.bytes(4)
		case opFloat64:
			r.bytes(8)
		default:
			if op == opPrefix {
				op = 0x100 + r.number()
			}
			n := immediates(op)
			if n < 0 {
				r.err = fmt.Errorf("%w: instruction %#x is not known", errModule, op)
				return nil
			}
			for range n {
				r.number()
			}
		}
		switch op {
		case opLoop:
			insert(len(all)-len(r.rest), added.inLoops)
		case opCopy, opFill:
			insert(begin, added.beforeBulk)
		}
	}
	return append(out, all[copied:]...)
}
