package oci

// Agent is the agent's image. The Dockerfile's final stage says the same, which a test holds it to.
func Agent(binaries map[string]string) Image {
	return Image{
		Name:       "localhost/jettison:dev",
		Binaries:   binaries,
		Path:       "/jettison",
		Entrypoint: []string{"/jettison"},
		Cmd:        []string{"run"},
		Labels:     map[string]string{"org.opencontainers.image.title": "jettison"},
	}
}

// Bridge is the bridge's image, likewise.
func Bridge(binaries map[string]string) Image {
	return Image{
		Name:       "localhost/jettison-bridge:dev",
		Binaries:   binaries,
		Path:       "/jettison-bridge",
		Entrypoint: []string{"/jettison-bridge"},
		Cmd:        []string{"run"},
		Labels:     map[string]string{"org.opencontainers.image.title": "jettison-bridge"},
	}
}

// Images are those that are shipped, by the name of the binary.
var Images = map[string]func(binaries map[string]string) Image{"jettison": Agent, "jettison-bridge": Bridge}
