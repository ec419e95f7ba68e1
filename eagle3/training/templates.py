"""Templates that turn a topic into a prompt, one function for each kind. [Ours]

Every function takes the topic and a seeded random.Random and returns one user message.
"""

import random

CHAT = (
    "Hi! I keep hearing about {topic} lately. Could you tell me what it is about?",
    "I know almost nothing about {topic}. What should I understand first, and why?",
    "My friend and I argued about {topic} yesterday. What is a fair way to look at it?",
    "What are three common mistakes that people make when it comes to {topic}?",
    "Can you explain {topic} to me as if I were ten years old?",
    "I have to talk about {topic} for two minutes tomorrow. What should I say?",
    "Why do so many people find {topic} interesting? I would love to hear your view.",
    "What is one surprising fact about {topic} that most people have never heard of?",
    "I feel a bit lost with {topic}. Where would you begin, step by step?",
    "How has the way that people think about {topic} changed over the years?",
    "If you could give me only one piece of advice about {topic}, what would it be?",
    "What questions should I ask an expert on {topic} when I meet one next week?",
    "Would you spend a whole weekend on {topic}? Please give me an honest answer.",
    "Good morning! Where do we meet {topic} in everyday life? Please keep it brief.",
)

INSTRUCTION = (
    "Write a short paragraph about {topic} for a reader who is new to the subject.",
    "List five important points about {topic}. Use one short sentence for each point.",
    "Give me a step-by-step guide on {topic} with a short explanation for each step.",
    "Write a friendly email to a colleague in which you recommend a talk on {topic}.",
    "Make a table with two columns, pros and cons, about {topic}.",
    "Compose a poem of eight lines about {topic}. It should rhyme and end on hope.",
    "Write three quiz questions about {topic}, each with four choices and the answer.",
    "Describe {topic} in exactly three sentences, without using any technical words.",
    "Draft the opening of a newspaper article about {topic}, with a catchy headline.",
    "Create a lesson plan of thirty minutes that introduces {topic} to a school class.",
    "Write a dialogue between a teacher and a curious student about {topic}.",
    "Give a definition, an example and a common misunderstanding for {topic}.",
    "Write a checklist with six items for somebody who wants to deal with {topic}.",
    "Tell a short story of about one hundred words that has to do with {topic}.",
)

CODE = (
    "Write a {language} function to {topic}. Add a short comment to each step.",
    "How do I {topic} in {language}? Please show a small example with its output.",
    "I am new to {language}. Show me the simplest way to {topic} and explain the code.",
    "Write a {language} program to {topic}, and add two tests for the edge cases.",
    "Explain in plain words how to {topic}, then give the code in {language}.",
    "My {language} code should {topic}, but it is slow. How would you write it?",
    "Show two different ways to {topic} in {language} and compare them briefly.",
    "Write clean {language} code to {topic}, with clear names and error handling.",
    "Give me a {language} snippet to {topic} without any external library.",
    "In a {language} job interview I was asked to {topic}. What is a good answer?",
    "Write pseudocode to {topic}. After that, turn the pseudocode into {language}.",
    "Please write a {language} class to {topic}, and show how somebody would use it.",
    "What can go wrong when you {topic} in {language}? Show a safe version of it.",
    "Complete this task in {language}: {topic}. Then state the time complexity.",
)
LANGUAGES = ("Python", "JavaScript", "Java", "C", "Go")

MATH = (
    "{name} has {a} {topic} and buys {b} more. Then {other} takes {small} of them. "
    "How many {topic} does {name} have now?",
    "A shop sells {topic} for {small} dollars each. {name} buys {b} of them and pays "
    "with {note} dollars. How much change does {name} get back?",
    "{name} packs {product} {topic} into boxes of {small}. How many boxes does {name} "
    "fill? Show your work.",
    "{name} makes {a} {topic} a day and {other} makes {b} a day. How many {topic} do "
    "they make together in {small} days?",
    "There are {a} {topic} in each of {small} rooms. If {other} removes {b} of them, "
    "how many {topic} are left in total?",
    "{name} counts {a} {topic} on Monday and twice as many on Tuesday. On Wednesday "
    "{other} counts {b} more. What is the total of all three days?",
    "{name} and {other} share {product} {topic} equally among {small} friends. How "
    "many {topic} does each friend receive?",
    "The price of {topic} rises from {b} dollars to {higher} dollars. By how many "
    "dollars does it rise, and what do {small} of them cost now?",
    "{name} needs {total} {topic} for a fair and already has {a}. How many {topic} are "
    "still missing? Explain each step.",
    "A truck carries {small} pallets, and each pallet holds {b} {topic}. After {name} "
    "unloads {a_few} of the {topic}, how many are still on the truck?",
    "{name} sold {a} {topic} in the morning and {b} in the afternoon at {small} "
    "dollars each. How much money did {name} earn?",
    "Of the {hundreds} {topic} in a warehouse, {percent} percent belong to {name}. How "
    "many {topic} belong to {name}?",
    "{name} is {b} years old and collects {small} {topic} a year. How many {topic} "
    "will {name} have collected after {a_few} years? Show the calculation.",
    "Half of {even} {topic} are red. {name} paints {a_few} of the other ones red too. "
    "How many red {topic} are there in the end?",
)
NAMES = (
    *("Amira", "Ben", "Chloe", "Diego", "Elif", "Farah", "Goran", "Hana", "Ivan"),
    *("Jada", "Kofi", "Lena", "Marco", "Nadia", "Omar", "Priya", "Quinn", "Rosa"),
    *("Sam", "Tomoko", "Uma", "Viktor", "Wanda", "Xavier", "Yara", "Zoltan"),
)

OPENINGS = (
    "Last {day}, {name} gave a public talk about {topic} in a small hall in {city}.",
    "A new course about {topic} has started in {city}, and {name} is its teacher.",
    "When {name} first came across {topic}, nobody in {city} seemed to care about it.",
    "The spring issue of a magazine from {city} has a long report on {topic}.",
    "{name} has spent {years} years on {topic} and now writes a book about it.",
    "A group in {city} meets every {day} to talk about {topic}.",
)
MIDDLES = (
    "About {crowd} people came, which was far more than expected.",
    "The main point was simple: with {topic}, the details matter most.",
    "{other}, who works in the same field, disagreed with several of the claims.",
    "Many listeners said that they had never looked at {topic} in this way before.",
    "The costs were low, because {crowd} volunteers offered their time.",
    "At first there were problems, and two of the early plans had to be dropped.",
    "A survey of {crowd} readers shows that most of them want clearer advice.",
    "{name} thinks that small steps, repeated often, lead to the best results.",
    "Some critics say that the subject gets more attention than it deserves.",
    "Photographs and old notes helped to show how much has changed in {years} years.",
    "Children asked the best questions, and a few of them had no easy answer.",
    "The weather was poor, so everything had to move indoors at short notice.",
)
CLOSINGS = (
    "The next meeting is planned for {day}, and everybody is welcome.",
    "In the end, both sides agreed to collect more facts before they decide.",
    "{other} will continue the work next year with a larger team.",
    "Whether the interest will last is an open question.",
    "The organisers hope to repeat the event in {years} other towns.",
    "For {name}, this was only the beginning.",
)
SUMMARY = (
    "Summarize the following text in two sentences.\n\n{passage}",
    "{passage}\n\nSummarize the passage above in one sentence.",
    "Here is a short text:\n\n{passage}\n\nWhat are its three main points?",
    "Read this passage and give me a summary in plain words.\n\n{passage}",
    "{passage}\n\nSummarize this for a busy reader, in at most thirty words.",
    "Please shorten this text to its key message.\n\n{passage}",
    "Text: {passage}\n\nSummary in two sentences:",
    "Summarize the text below as a list of bullet points.\n\n{passage}",
    "{passage}\n\nWrite a headline and a one-sentence summary for this text.",
    "I have no time to read all of this. Can you summarize it?\n\n{passage}",
    "Condense the following report, and keep all names and numbers.\n\n{passage}",
    "{passage}\n\nHow would you retell this to a friend in two sentences?",
    "Summarize this passage for a ten-year-old child.\n\n{passage}",
)
CITIES = ("Bergen", "Bristol", "Cusco", "Dakar", "Graz", "Hanoi", "Leipzig", "Osaka")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def chat(topic: str, rng: random.Random) -> str:
    """Asks about a topic as in a conversation. [Ours]"""
    return rng.choice(CHAT).format(topic=topic)


def instruction(topic: str, rng: random.Random) -> str:
    """Orders a short piece of writing about a topic. [Ours]"""
    return rng.choice(INSTRUCTION).format(topic=topic)


def code(topic: str, rng: random.Random) -> str:
    """Asks for a program; `topic` is a verb phrase that can follow "to". [Ours]"""
    return rng.choice(CODE).format(topic=topic, language=rng.choice(LANGUAGES))


def math(topic: str, rng: random.Random) -> str:
    """Tells an arithmetic story about things; every division leaves no rest. [Ours]"""
    name, other = rng.sample(NAMES, 2)
    a, b = rng.randint(20, 90), rng.randint(11, 19)
    small, a_few = rng.randint(3, 9), rng.randint(2, 10)
    return rng.choice(MATH).format(
        topic=topic,
        name=name,
        other=other,
        a=a,
        b=b,
        small=small,
        a_few=a_few,
        product=small * b,
        note=200,  # more than 9 * 19 dollars
        higher=b + a_few,
        total=a + rng.randint(15, 80),
        hundreds=100 * small,
        percent=5 * a_few,
        even=2 * a,
    )


def summary(topic: str, rng: random.Random) -> str:
    """Composes a passage about a topic and asks for a summary. [Ours]"""
    sentences = [rng.choice(OPENINGS), *rng.sample(MIDDLES, 3), rng.choice(CLOSINGS)]
    name, other = rng.sample(NAMES, 2)
    passage = " ".join(sentences).format(
        topic=topic,
        name=name,
        other=other,
        city=rng.choice(CITIES),
        day=rng.choice(DAYS),
        years=rng.randint(2, 30),
        crowd=rng.randint(15, 400),
    )
    return rng.choice(SUMMARY).format(passage=passage)
