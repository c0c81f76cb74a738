package podjson

import "google.golang.org/protobuf/encoding/protowire"

// Memory of a list element when decoded, at least that of the largest: v1.Container and
// v1.ContainerStatus; v1.Volume with its source; elements of other lists. Nested lists take about
// perByte times their text.
const (
	ofContainer = 1300
	ofVolume    = 400
	ofOther     = 128
	perByte     = 8
)

// Numbers of fields (k8s.io/api/core/v1 generated.proto, v0.37): of a Pod; of its spec; the common
// part of an ephemeral container; and of a container the arguments, up to which all fields are
// texts, and the environment.
const (
	podMeta, podSpec, podStatus                                    = 1, 2, 3
	specVolumes, specContainers, specInitContainers, specEphemeral = 1, 2, 20, 34
	ephemeralCommon                                                = 1
	containerArgs, containerEnv                                    = 4, 7
)

// decodedSize estimates the memory of a decoded pod in bytes: a hundred thousand volumes are a
// megabyte of text and 40 of memory. Malformed input is left to the decoder.
func decodedSize(raw []byte) (bytes int) {
	bytes = 2 * len(raw)
	parts(raw, func(field protowire.Number, part []byte) {
		switch field {
		case podMeta:
			parts(part, func(protowire.Number, []byte) { bytes += ofOther })
		case podSpec:
			parts(part, func(n protowire.Number, part []byte) { bytes += decodedSpecField(n, part) })
		case podStatus:
			parts(part, func(_ protowire.Number, part []byte) { bytes += ofContainer + perByte*len(part) })
		}
	})
	return bytes
}

// decodedSpecField estimates the memory of a field of a spec.
func decodedSpecField(field protowire.Number, part []byte) (bytes int) {
	switch field {
	case specVolumes:
		return ofVolume + perByte*len(part)
	case specEphemeral:
		parts(part, func(n protowire.Number, part []byte) {
			if n == ephemeralCommon {
				bytes += decodedSpecField(specContainers, part)
			}
		})
		return bytes
	case specContainers, specInitContainers:
		bytes = ofContainer
		parts(part, func(n protowire.Number, part []byte) {
			if bytes += ofOther; n > containerArgs && n != containerEnv {
				bytes += perByte * len(part)
			}
		})
		return bytes
	}
	return ofOther + perByte*len(part)
}

// parts visits the fields of a message that have a length: texts, messages, list elements.
func parts(b []byte, visit func(field protowire.Number, part []byte)) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if kind == protowire.BytesType {
			part, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			visit(number, part)
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return
		}
		b = b[n:]
	}
}
