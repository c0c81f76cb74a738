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
