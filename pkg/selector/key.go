package selector

import "encoding/binary"

// endOfList ends the key of an array or an object. It differs from all kinds.
const endOfList = 0xff

// key returns bytes that are equal for two values if and only if the values compare as equal. The
// next call overwrites them.
func (w *work) key(o order, v value) []byte {
	w.text = w.appendKey(w.text[:0], o, v)
	return w.text
}

func (w *work) appendKey(b []byte, o order, v value) []byte {
	w.spend(1)
	b = append(b, byte(v.kind()))
	switch v.kind() {
	case kindNumber:
		w.spend(len(v.literal()) / bytesPerStep)
		d := parseDecimal(string(v.literal()))
		b = binary.BigEndian.AppendUint64(append(b, byte(d.sign)), uint64(d.exponent))
		return appendText(b, d.digits)
	case kindString:
		return w.appendStringKey(b, o, w.str(v))
	case kindArray:
		for e := range v.elements {
			b = w.appendKey(b, o, e)
		}
		return append(b, endOfList)
	case kindObject:
		for _, m := range w.members(v) {
			b = w.appendKey(w.appendStringKey(append(b, byte(kindString)), o, m.key), o, m.value)
		}
		return append(b, endOfList)
	}
	return b
}

func (w *work) appendStringKey(b []byte, o order, s string) []byte {
	if o == termOrder {
		w.spend(len(s) / bytesPerStep)
		return appendText(b, s)
	}
	w.spend(collationSteps(s))
	c := collators.Get().(*collator)
	defer c.release(len(s))
	return appendText(b, c.KeyFromString(&c.keys, s))
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// collationSteps is the cost of collating a string.
func collationSteps(s string) int {
	steps := len(s)
	for i := range len(s) {
		if 0xea <= s[i] && s[i] <= 0xed { // the first byte of a Hangul syllable in UTF-8
			steps += stepsPerSyllable
		}
	}
	return steps
}
