# McMilin 2024, "Underspecification in Language Modeling Tasks", equations 1 to 5.
# The ICLR submission "Selection Induced Collider Bias" adds beta, the weight of W in X.

alpha = 10
beta = 1
gamma = 0                # 1: G is in X, and X decides Y

G := alpha * normal()
W := alpha / 2 * normal()
S := W + G + normal() > 2 * alpha
X := beta * W + gamma * G + normal()
Y := gamma * X + G + normal()

select S
compare W, G; X, Y

case well specified: gamma = 1
case unspecified: gamma = 0
case well specified, beta 0.1: gamma = 1, beta = 0.1
case unspecified, beta 0.1: gamma = 0, beta = 0.1
case well specified, beta 0.01: gamma = 1, beta = 0.01
case unspecified, beta 0.01: gamma = 0, beta = 0.01
