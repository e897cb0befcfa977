package certs

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"hash"
	"strings"
)

// decryptKey decrypts the private key in PEM data, if the key is encrypted: as PKCS #8 (RFC 5958), or in the
// older form that names the cipher in its headers (RFC 1421). It returns other data as it is.
func decryptKey(data []byte, password string) ([]byte, error) {
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return data, nil // no key is encrypted
		}
		var err error
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY":
			if block.Bytes, err = decryptPKCS8(block.Bytes, []byte(password)); err != nil {
				return nil, err
			}
			block.Type = "PRIVATE KEY"
		case strings.HasSuffix(block.Type, "PRIVATE KEY") && block.Headers["DEK-Info"] != "":
			//nolint:staticcheck // the form is weak, and such files exist
			if block.Bytes, err = x509.DecryptPEMBlock(block, []byte(password)); err != nil {
				return nil, errWrongPassword
			}
			block.Headers = nil
		default:
			continue
		}
		return pem.EncodeToMemory(block), nil
	}
}

var errWrongPassword = errors.New("the private key cannot be decrypted with the password")

// encryptedKey is EncryptedPrivateKeyInfo (RFC 5958, section 3).
type encryptedKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

// pbes2Params are the parameters of PBES2, and pbkdf2Params the parameters of PBKDF2 (RFC 8018, appendix A).
type pbes2Params struct {
	Derivation, Encryption pkix.AlgorithmIdentifier
}

type pbkdf2Params struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

const (
	oidPBES2  = "1.2.840.113549.1.5.13"
	oidPBKDF2 = "1.2.840.113549.1.5.12"
	// maxIterations bounds the time that a broken file takes.
	maxIterations = 10_000_000
)

// prfs are the hash functions of PBKDF2 by their object identifiers. The empty one is the default.
var prfs = map[string]func() hash.Hash{
	"":                    sha1.New,
	"1.2.840.113549.2.7":  sha1.New,
	"1.2.840.113549.2.9":  sha256.New,
	"1.2.840.113549.2.10": sha512.New384,
	"1.2.840.113549.2.11": sha512.New,
}

// blockCipher is a cipher for private keys, in CBC mode.
type blockCipher struct {
	keyLength int // bytes
	make      func(key []byte) (cipher.Block, error)
}

// blockCiphers are the ciphers by their object identifiers.
var blockCiphers = map[string]blockCipher{
	"2.16.840.1.101.3.4.1.2":  {16, aes.NewCipher},
	"2.16.840.1.101.3.4.1.22": {24, aes.NewCipher},
	"2.16.840.1.101.3.4.1.42": {32, aes.NewCipher},
	"1.2.840.113549.3.7":      {24, des.NewTripleDESCipher},
}

var errKeyScheme = errors.New("the private key is encrypted in a way that is not supported: " +
	"`openssl pkcs8 -topk8 -v2 aes-256-cbc` writes one that is")

// decryptPKCS8 decrypts the form that openssl's genpkey and pkcs8 write: PBES2 with PBKDF2.
func decryptPKCS8(der, password []byte) ([]byte, error) {
	var key encryptedKey
	if _, err := asn1.Unmarshal(der, &key); err != nil {
		return nil, errors.New("the private key is malformed")
	}
	var scheme pbes2Params
	var derivation pbkdf2Params
	var iv []byte
	if key.Algorithm.Algorithm.String() != oidPBES2 || unmarshal(key.Algorithm, &scheme) != nil ||
		scheme.Derivation.Algorithm.String() != oidPBKDF2 || unmarshal(scheme.Derivation, &derivation) != nil ||
		unmarshal(scheme.Encryption, &iv) != nil {
		return nil, errKeyScheme
	}
	prf := ""
	if len(derivation.PRF.Algorithm) > 0 {
		prf = derivation.PRF.Algorithm.String()
	}
	newHash, known := prfs[prf]
	c, usable := blockCiphers[scheme.Encryption.Algorithm.String()]
	if !known || !usable || derivation.Iterations > maxIterations {
		return nil, errKeyScheme
	}
	derived, err := pbkdf2.Key(newHash, string(password), derivation.Salt, derivation.Iterations, c.keyLength)
	if err != nil {
		return nil, err
	}
	b, err := c.make(derived)
	if err != nil {
		return nil, err
	}
	return decryptCBC(b, iv, key.Data)
}

func unmarshal(algorithm pkix.AlgorithmIdentifier, params any) error {
	_, err := asn1.Unmarshal(algorithm.Parameters.FullBytes, params)
	return err
}

// decryptCBC decrypts a text and removes its padding (RFC 8018, section 6.1.1). With a wrong password the
// padding is nearly always wrong, and the error is errWrongPassword.
func decryptCBC(b cipher.Block, iv, text []byte) ([]byte, error) {
	size := b.BlockSize()
	if len(iv) != size || len(text) == 0 || len(text)%size != 0 {
		return nil, errors.New("the private key is malformed")
	}
	plain := make([]byte, len(text))
	cipher.NewCBCDecrypter(b, iv).CryptBlocks(plain, text)
	n := int(plain[len(plain)-1])
	if n == 0 || n > size || !bytes.Equal(plain[len(plain)-n:], bytes.Repeat([]byte{byte(n)}, n)) {
		return nil, errWrongPassword
	}
	return plain[:len(plain)-n], nil
}
