package podjson

import "google.golang.org/protobuf/encoding/protowire"

// What each element of a list takes when it is decoded, at least as much as the largest of them:
// v1.Container, v1.ContainerStatus; v1.Volume with its source; what else there are lists of. Lists
// within these take about so many times their text.
const (
	ofContainer = 1300
	ofVolume    = 400
	ofOther     = 128
	perByte     = 8
)

// Numbers of fields (k8s.io/api/core/v1 generated.proto, v0.37): of a Pod, of its spec, of an
// ephemeral container what it has in common with the others, and of these the arguments, up to
// which there are texts alone, and the environment.
const (
	podMeta, podSpec, podStatus                                    = 1, 2, 3
	specVolumes, specContainers, specInitContainers, specEphemeral = 1, 2, 20, 34
	ephemeralCommon                                                = 1
	containerArgs, containerEnv                                    = 4, 7
)

// decoded is about how much memory a pod takes when it is decoded, in bytes: a hundred thousand
// volumes are a megabyte of text, and 40 of memory. What is malformed is for the decoder to say.
func decoded(raw []byte) (bytes int) {
	bytes = 2 * len(raw)
	parts(raw, func(of protowire.Number, part []byte) {
		switch of {
		case podMeta:
			parts(part, func(protowire.Number, []byte) { bytes += ofOther })
		case podSpec:
			parts(part, func(of protowire.Number, part []byte) { bytes += decodedOfSpec(of, part) })
		case podStatus:
			parts(part, func(_ protowire.Number, part []byte) { bytes += ofContainer + perByte*len(part) })
		}
	})
	return bytes
}

// decodedOfSpec is what a field of a spec takes.
func decodedOfSpec(of protowire.Number, part []byte) (bytes int) {
	switch of {
	case specVolumes:
		return ofVolume + perByte*len(part)
	case specEphemeral:
		parts(part, func(of protowire.Number, part []byte) {
			if of == ephemeralCommon {
				bytes += decodedOfSpec(specContainers, part)
			}
		})
		return bytes
	case specContainers, specInitContainers:
		bytes = ofContainer
		parts(part, func(of protowire.Number, part []byte) {
			if bytes += ofOther; of > containerArgs && of != containerEnv {
				bytes += perByte * len(part)
			}
		})
		return bytes
	}
	return ofOther + perByte*len(part)
}

// parts visits the fields of a message that have a length: texts, messages, elements of lists.
func parts(b []byte, visit func(of protowire.Number, part []byte)) {
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
