package spec

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateConfigMap(c *v1.ConfigMap) field.ErrorList {
	errs := validateMeta(&c.ObjectMeta)
	size := 0
	for key, value := range c.Data {
		at := field.NewPath("data").Key(key)
		errs = append(errs, invalid(at, key, validation.IsConfigMapKey)...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(at, key, "is also in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, invalid(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey)...)
		size += len(value)
	}
	if size > v1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", v1.MaxSecretSize))
	}
	return errs
}

// defaultSecret sets the type, and moves stringData to data, as an API server does.
func defaultSecret(s *v1.Secret) {
	if s.Type == "" {
		s.Type = v1.SecretTypeOpaque
	}
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// secretKeys are the keys that the types of Secrets need.
var secretKeys = map[v1.SecretType][]string{
	v1.SecretTypeDockercfg:        {v1.DockerConfigKey},
	v1.SecretTypeDockerConfigJson: {v1.DockerConfigJsonKey},
	v1.SecretTypeSSHAuth:          {v1.SSHAuthPrivateKey},
	v1.SecretTypeTLS:              {v1.TLSCertKey, v1.TLSPrivateKeyKey},
}

// validateSecret checks a Secret. Its errors do not contain values.
func validateSecret(s *v1.Secret) field.ErrorList {
	errs := validateMeta(&s.ObjectMeta)
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, invalid(data.Key(key), key, validation.IsConfigMapKey)...)
		size += len(value)
	}
	if size > v1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", v1.MaxSecretSize))
	}
	for _, key := range secretKeys[s.Type] {
		value, ok := s.Data[key]
		switch {
		case !ok || s.Type == v1.SecretTypeSSHAuth && len(value) == 0:
			errs = append(errs, field.Required(data.Key(key), "the type "+string(s.Type)+" needs it"))
		case s.Type == v1.SecretTypeDockercfg, s.Type == v1.SecretTypeDockerConfigJson:
			if json.Unmarshal(value, &map[string]any{}) != nil {
				errs = append(errs, field.Invalid(data.Key(key), "(secret)", "must be a JSON object"))
			}
		}
	}
	switch s.Type {
	case v1.SecretTypeBasicAuth:
		_, user := s.Data[v1.BasicAuthUsernameKey]
		_, password := s.Data[v1.BasicAuthPasswordKey]
		for _, key := range []string{v1.BasicAuthUsernameKey, v1.BasicAuthPasswordKey} {
			if !user && !password {
				errs = append(errs, field.Required(data.Key(key), "the type needs a username or a password"))
			}
		}
	case v1.SecretTypeServiceAccountToken:
		if s.Annotations[v1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(
				v1.ServiceAccountNameKey), ""))
		}
	}
	return errs
}
